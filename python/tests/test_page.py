"""The example of the page for programmers, as it is there."""

import pathlib

import switchyard


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "program.md"


def examples() -> list[str]:
    return [rest.split("```")[0] for rest in PAGE.read_text().split("```python\n")[1:]]


def test_the_example_runs(serve):
    example = examples()[0]
    assert "127.0.0.1:4420" in example
    names: dict[str, object] = {}
    exec(example.replace("127.0.0.1:4420", serve.address), names)
    assert names["data"] == b"\x07" * 4096
    assert names["blocks"] == [b"\x07" * 4096] * 2 + [bytes(4096)] * 126


def test_the_example_of_knobs_runs(capsys):
    [example] = [example for example in examples() if "set_knobs" in example]
    exec(example, {"switchyard": switchyard})
    assert capsys.readouterr().out == "fixed\n0\n"
