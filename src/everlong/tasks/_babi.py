"""bAbI's files (Weston et al. 2015, arXiv 1502.05698): stories cut into questions, each with the facts before it."""

import re
from dataclasses import dataclass
from pathlib import Path

from everlong.errors import EverlongError


@dataclass(frozen=True)
class Question:
    """A question with all facts of its story that come before it, in order."""

    facts: tuple[str, ...]
    question: str
    answer: str


def read_questions(folder: str, name: str, *, training: bool) -> tuple[Question, ...]:
    """The questions of ``name`` (qa1, ...) in a folder of bAbI's files: of the training or of the test file.

    The training files have some of the test files' questions with the very same facts (135 of qa4's 1,000 in en, 2 of
    qa1's, 1 of qa7's): these are left out of training, so that what is scored was never trained on.

    Raises:
        EverlongError: no such file, several, or one that is not in bAbI's form; nothing is left to train on.
    """
    tested = _parse(_file(folder, name, "test"))
    if not training:
        return tested
    kept = {(question.facts, question.question) for question in tested}
    path = _file(folder, name, "train")
    questions = tuple(question for question in _parse(path) if (question.facts, question.question) not in kept)
    if not questions:
        raise EverlongError(f"{path} has no question that the test file has not: give the folder of bAbI's files")
    return questions


def _file(folder: str, name: str, wanted: str) -> Path:
    """The one file of a name and part."""
    try:
        found = sorted(path for path in Path(folder).expanduser().iterdir() if _is(path.name, name, wanted))
    except OSError as error:
        raise EverlongError(
            f"--babi {folder} cannot be read: {error.strerror}; give the folder of bAbI's files"
        ) from None
    if len(found) != 1:
        raise EverlongError(
            f"--babi {folder} has {len(found)} files named {name}_..._{wanted}.txt: give the folder of bAbI's files, "
            "such as its en-10k"
        )
    return found[0]


def _is(file: str, name: str, wanted: str) -> bool:
    return re.fullmatch(rf"{name}_.*_{wanted}\.txt", file) is not None


def _parse(path: Path) -> tuple[Question, ...]:
    questions, facts = [], []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EverlongError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        parts = line.strip().split("\t")
        match = re.fullmatch(r"(\d+) (.+)", parts[0])
        if not match or len(parts) not in (1, 3):
            raise EverlongError(f"{path} line {number} is neither ID text nor ID question[tab]answer[tab]IDs")
        if match.group(1) == "1":
            facts = []
        if len(parts) == 1:
            facts.append(match.group(2).strip())
        else:
            questions.append(Question(tuple(facts), match.group(2).strip(), parts[1].strip()))
    if not questions:
        raise EverlongError(f"{path} has no question")
    return tuple(questions)
