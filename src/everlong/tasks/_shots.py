"""What a few-shot BABILong prompt begins with: an instruction and two solved examples a task, in our own wording."""

_HIDDEN = "Facts about people and things are hidden in the text below. Answer the question from these facts alone"

_INSTRUCTIONS = {
    "qa1": f"{_HIDDEN}; of several places of a person, the last one counts.",
    "qa2": f"{_HIDDEN}. A thing goes with the person who carries it and stays where it is put down.",
    "qa3": f"{_HIDDEN}. A thing goes with the person who carries it and stays where it is put down.",
    "qa4": f"{_HIDDEN}, with one word, a place.",
    "qa5": f"{_HIDDEN}, with one word, a person or a thing.",
    "qa6": f"{_HIDDEN}, with yes or no; of several places of a person, the last one counts.",
    "qa7": f"{_HIDDEN}, with one word: none, one, two or three.",
    "qa8": f"{_HIDDEN}, with nothing, with one thing, or with several with commas between them.",
    "qa9": f"{_HIDDEN}, with yes or no; of several places of a person, the last one counts.",
    "qa10": f"{_HIDDEN}, with yes, no or maybe; of several places of a person, the last one counts.",
}
_SOLVED = {
    "qa1": (
        ("Peter went to the cellar. Anne went to the attic. Peter moved to the barn.", "Where is Peter?", "barn"),
        ("Anne travelled to the shop. Peter went back to the attic.", "Where is Anne?", "shop"),
    ),
    "qa2": (
        ("Anne went to the attic. Anne took the lamp. Anne moved to the barn.", "Where is the lamp?", "barn"),
        (
            "Peter got the coat. Peter went to the shop. Peter left the coat. Peter went to the barn.",
            "Where is the coat?",
            "shop",
        ),
    ),
    "qa3": (
        (
            "Anne took the lamp. Anne went to the attic. Anne moved to the barn.",
            "Where was the lamp before the barn?",
            "attic",
        ),
        (
            "Peter went to the shop. Peter got the coat. Peter travelled to the cellar. Peter went to the attic.",
            "Where was the coat before the attic?",
            "cellar",
        ),
    ),
    "qa4": (
        ("The attic is north of the barn. The cellar is south of the barn.", "What is north of the barn?", "attic"),
        ("The shop is east of the attic. The barn is west of the attic.", "What is the attic west of?", "shop"),
    ),
    "qa5": (
        ("Anne took the lamp. Anne gave the lamp to Peter. Peter went to the barn.", "Who gave the lamp?", "Anne"),
        ("Peter got the coat. Peter handed the coat to Anne.", "What did Peter give to Anne?", "coat"),
    ),
    "qa6": (
        ("Peter went to the cellar. Peter moved to the barn.", "Is Peter in the barn?", "yes"),
        ("Anne went to the attic. Peter went to the shop.", "Is Anne in the shop?", "no"),
    ),
    "qa7": (
        ("Anne took the lamp. Anne went to the attic.", "How many objects is Anne carrying?", "one"),
        ("Peter got the coat. Peter gave the coat to Anne.", "How many objects is Peter carrying?", "none"),
    ),
    "qa8": (
        ("Anne took the lamp. Peter went to the shop. Anne took the coat.", "What is Anne carrying?", "lamp,coat"),
        ("Peter got the coat. Peter left the coat.", "What is Peter carrying?", "nothing"),
    ),
    "qa9": (
        ("Peter is in the barn. Anne is no longer in the attic.", "Is Anne in the attic?", "no"),
        ("Anne went to the shop. Peter is not in the cellar.", "Is Anne in the shop?", "yes"),
    ),
    "qa10": (
        ("Peter is either in the barn or the shop.", "Is Peter in the barn?", "maybe"),
        ("Anne is in the attic. Peter is either in the barn or the shop.", "Is Anne in the cellar?", "no"),
    ),
}

SHOTS = {
    name: "\n".join(
        [
            instruction,
            *(
                f"<example>\n{facts}\nQuestion: {question}\nAnswer: {answer}.\n</example>"
                for facts, question, answer in _SOLVED[name]
            ),
            "<context>",
        ]
    )
    for name, instruction in _INSTRUCTIONS.items()
}
"""qa1 to qa10 -> the beginning of a prompt, to which text and facts follow."""
