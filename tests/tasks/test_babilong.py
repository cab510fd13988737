"""BABILong: the facts in order among whole sentences, the official rule, the floors known."""

import re
from itertools import pairwise

import numpy as np
import pytest

from everlong.data.tokenizers import ByteTokenizer, load_tokenizer
from everlong.errors import EverlongError
from everlong.tasks._babi import read_questions
from everlong.tasks._books import Books
from everlong.tasks._labels import LABELS, named, right
from everlong.tasks.babilong import BABILong
from everlong.tasks.config import QUESTIONS, BABILongConfig


def task_of(babi, books, **settings):
    given = {"babi": str(babi), "books": (str(books),), "questions": ("qa1",), **settings}
    training = given.pop("training", False)
    return BABILong(BABILongConfig(**given), ByteTokenizer(), training=training)


def test_facts_stand_in_order_between_whole_sentences_of_one_book(babi, books):
    task = task_of(babi, books)
    for index in range(12):
        text = ByteTokenizer().decode(task.example({"length": 1500, "question": "qa1"}, seed=0, index=index).prompt)
        context, question = text.split("\nQuestion: ")
        assert question == "Where is Mary?\nAnswer:"
        facts = re.findall(r" Mary (?:went|moved) to the \w+\.", context)
        assert len(facts) in (2, 4)
        assert [fact.split()[1] for fact in facts] == ["went", "moved"] * (len(facts) // 2)
        rest = context
        for fact in facts:
            rest = rest.replace(fact, "", 1)
        sentences = re.findall(r"Sentence (\d+) of book (\w+) says little\.", rest)
        numbers = [int(number) for number, _ in sentences]
        assert len(sentences) > 20
        jumps = [b - a for a, b in pairwise(numbers)]
        assert sum(jump != 1 for jump in jumps) <= 1  # at the end of a book another one begins
        broken = re.sub(r" Sentence \d+ of book \w+ says little\.", "", rest)
        assert len(broken) < 40  # the rest of the first sentence


def test_text_has_its_exact_length_where_the_last_sentence_is_longer_than_the_first_ones(tmp_path):
    (tmp_path / "uneven.txt").write_text(
        " ".join(f"Short one {n}. A long one {n} {'goes on ' * 30}." for n in range(50))
    )
    books = Books((str(tmp_path),))
    for count in range(0, 700, 7):
        sentences = books.sentences(np.random.default_rng(count), count, ByteTokenizer().encode)
        assert sum(map(len, sentences)) == count
        whole = [ByteTokenizer().decode(sentence) for sentence in sentences[1:]]
        assert all(text.startswith((" Short one", " A long one")) and text.endswith(".") for text in whole)


@pytest.mark.parametrize("texts", [["Hi. Yo. No."], ["Hi. Yo. No.", "1. 2. 3."]])
def test_books_without_a_sentence_are_refused_instead_of_searched_for_ever(tmp_path, texts):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    with pytest.raises(EverlongError, match="no sentence of 10 characters or more: give prose"):
        Books((str(tmp_path),)).sentences(np.random.default_rng(0), 30, ByteTokenizer().encode)


def test_the_only_sentence_of_a_book_is_found_wherever_it_stands(tmp_path):
    (tmp_path / "index.txt").write_text("It was a dull day in the town. " + "Hi. Yo. " * 300)
    (tmp_path / "numbers.txt").write_text("1. 2. 3. " * 300)
    sentences = Books((str(tmp_path),)).sentences(np.random.default_rng(0), 62, ByteTokenizer().encode)
    assert [ByteTokenizer().decode(sentence) for sentence in sentences] == [" It was a dull day in the town."] * 2


@pytest.mark.parametrize("length", [0, 600])
def test_more_examples_than_questions_are_refused_since_a_repeat_is_no_other_example(babi, books, length):
    task, parameters = task_of(babi, books), {"length": length, "question": "qa1"}
    prompts = [tuple(task.example(parameters, seed=0, index=index).prompt) for index in range(24)]
    assert length == 0 or len(set(prompts)) == 24
    with pytest.raises(EverlongError, match=f"24 questions of qa1 at a length of {length}: give --examples 24 or"):
        task.example(parameters, seed=0, index=24)
    training = task_of(babi, books, training=True)
    assert training.example({"length": 600, "question": "qa1"}, seed=0, index=24)


def test_facts_are_scattered(babi, books):
    task = task_of(babi, books)
    places = []
    for index in range(20):
        prompt = task.example({"length": 1000, "question": "qa1"}, seed=1, index=index).prompt
        places.append(ByteTokenizer().decode(prompt).index("Mary went"))
    assert min(places) < 250
    assert max(places) > 500


def test_length_zero_is_facts_alone_and_needs_no_books(babi):
    task = BABILong(BABILongConfig(babi=str(babi), questions=("qa1",)), ByteTokenizer())
    text = ByteTokenizer().decode(task.example({"length": 0, "question": "qa1"}, seed=0, index=0).prompt)
    assert re.fullmatch(r"(?: Mary \w+ to the \w+\.)+\nQuestion: Where is Mary\?\nAnswer:", text)
    with pytest.raises(EverlongError, match="--books"):
        task.example({"length": 500, "question": "qa1"}, seed=0, index=0)


def test_questions_that_do_not_fit_are_left_out_and_the_cell_says_so(babi, books):
    task = task_of(babi, books)
    shortest = {"length": task.shortest_length({"length": 1, "question": "qa1"}), "question": "qa1"}
    (note,) = task.notes(shortest)
    assert re.search(r"of 24 questions have more facts than fit", note)
    assert task.notes({"length": 1000, "question": "qa1"}) == ()


def test_an_epoch_of_training_holds_every_question_once(babi, books):
    task = task_of(babi, books, training=True, questions=("qa1", "qa6"))
    counts = {name: len(questions) for name, questions in task._questions.items()}
    taken = [index for index in range(48) if index // 2 < counts[("qa1", "qa6")[index % 2]]]
    seen = []
    for index in taken:
        parameters = task.training_parameters(np.random.default_rng(0), 500, index)
        example = task.example(parameters, seed=0, index=index)
        text = ByteTokenizer().decode(example.prompt)
        facts = tuple(re.findall(r"Mary \w+ to the \w+\.", text))
        seen.append((example.kind, facts, example.question))
    stories = [
        (name, question.facts, question.question)
        for name, questions in task._questions.items()
        for question in questions
    ]
    assert sorted(seen) == sorted(stories)


def test_no_question_of_the_test_file_is_trained_on_with_its_facts(babi, tmp_path):
    tested = read_questions(str(babi), "qa1", training=False)
    trained = read_questions(str(babi), "qa1", training=True)
    (file,) = babi.glob("qa1_*_train.txt")
    assert 0 < len(trained) < 24 == file.read_text().count("?")  # the fixture's files have some in common
    assert not {(one.facts, one.question) for one in trained} & {(one.facts, one.question) for one in tested}
    for part in ("train", "test"):
        (tmp_path / f"qa1_x_{part}.txt").write_text("1 Mary went home.\n2 Where is Mary?\thome\t1\n")
    with pytest.raises(EverlongError, match="no question that the test file has not"):
        read_questions(str(tmp_path), "qa1", training=True)


def test_of_babi_itself_what_is_left_out_of_training_is_what_the_documentation_says(real_babi):
    left = {name: 1000 - len(read_questions(str(real_babi), name, training=True)) for name in QUESTIONS}
    assert {name: count for name, count in left.items() if count} == {"qa1": 2, "qa4": 135, "qa7": 1}


def test_few_shot_prompts_begin_with_solved_examples(babi, books):
    task = task_of(babi, books, few_shot=True)
    text = ByteTokenizer().decode(task.example({"length": 1500, "question": "qa1"}, seed=0, index=0).prompt)
    assert text.count("<example>") == 2
    assert text.index("<context>") < text.index("Mary")


@pytest.mark.parametrize(
    ("task", "target", "output", "question", "official", "by_words"),
    [
        ("qa1", "office", " office.", "Where is Mary?", True, True),
        ("qa1", "office", "Mary is in the OFFICE. Then the garden.", "Where is Mary?", True, True),
        ("qa1", "office", "the office or the garden", "Where is Mary?", False, False),
        ("qa1", "office", "in the barn", "Where is Mary?", False, False),
        ("qa4", "bedroom", "the bathroom is east of the bedroom", "What is the bathroom east of?", True, True),
        ("qa5", "Fred", "Fred", "Who gave the football to Jeff?", True, True),
        ("qa6", "no", "I do not know", "Is John here?", True, False),
        ("qa7", "none", "none", "How many objects is Mary carrying?", False, True),
        ("qa7", "one", "one", "How many objects is Mary carrying?", True, True),
        ("qa8", "football,apple", "apple, football.", "What is John carrying?", True, True),
        ("qa8", "football,apple", "apple", "What is John carrying?", False, False),
        ("qa8", "milk", "apple,milk", "What is John carrying?", False, False),
        ("qa10", "maybe", "Maybe.", "Is Bill in the park?", True, True),
        ("qa1", "office", "<context> office", "Where is Mary?", False, False),
        # booydar/babilong lower-cases and then splits on "Question", so that what follows counts
        ("qa1", "office", " office\nQuestion: Where is John?\nAnswer: garden", "Where is Mary?", False, True),
        ("qa1", "office", " office\nquestion: where is mary?\nanswer: office", "Where is Mary?", True, True),
    ],
)
def test_the_official_rule_and_the_rule_by_words(task, target, output, question, official, by_words):
    assert right(target, named(task, output, question, words=False)) is official
    assert right(target, named(task, output, question, words=True)) is by_words


def test_missing_and_foreign_files_are_named(babi, tmp_path):
    with pytest.raises(EverlongError, match="needs bAbI's facts: give --babi"):
        BABILong(BABILongConfig(), ByteTokenizer())
    with pytest.raises(EverlongError, match="0 files named qa2"):
        task_of(babi, babi, questions=("qa2",))
    (tmp_path / "qa1_x_test.txt").write_text("Mary went\n")
    with pytest.raises(EverlongError, match="line 1"):
        task_of(tmp_path, tmp_path)
    with pytest.raises(EverlongError, match="qa11 is unknown"):
        BABILongConfig(questions=("qa11",))


def test_on_babi_itself_the_floors_are_those_known_and_labels_hold_every_answer(real_babi):
    task = BABILong(BABILongConfig(babi=str(real_babi)), ByteTokenizer())
    floors = {name: task.floors({"length": 0, "question": name}, ())["most frequent"] for name in QUESTIONS}
    assert floors["qa1"] == pytest.approx(0.187)
    assert floors["qa6"] == pytest.approx(0.503)
    assert floors["qa9"] == pytest.approx(0.638)
    assert np.mean(list(floors.values())) == pytest.approx(0.34, abs=0.03)
    for name in QUESTIONS:
        for question in task._questions[name]:
            assert set(question.answer.split(",")) <= set(LABELS[name])


def test_on_babi_itself_examples_have_their_length(real_babi, books, shared):
    tokenizer = load_tokenizer(str(shared / "tokenizers" / "bpe4096_books.json"))
    task = BABILong(BABILongConfig(babi=str(real_babi), books=(str(books),), few_shot=True), tokenizer)
    for name in QUESTIONS:
        parameters = {"length": 4096, "question": name}
        example = task.example(parameters, seed=0, index=0)
        assert len(example.prompt) + len(example.answer) == 4096
        assert task.score(example, example.answer, example.answer)["accuracy_by_words"] == 1
