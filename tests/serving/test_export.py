"""Exported files recommend what `coterie recommend` does, in Python and in JavaScript."""

from __future__ import annotations

import ast
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie import Run
from coterie.errors import ConfigError, RunError
from coterie.serving.export import export

KINDS: dict[str, dict[str, object]] = {
    "als": {},
    "fedals": {"reg_exponent": 0},
    "fcf": {"missing_weight": 0.3},
    "bpr": {},
    "gmf": {"popularity_prior": 0},
    "ease": {},
    "itemknn": {},
    "fedslim": {},
}
WITH_POPULARITY = {"fedavg": {}, "als": {"popularity_prior": 5}}
FITTED = {"als", "fedals", "fcf", "ease", "itemknn", "fedslim"}
"""Algorithms whose scorer serves new users."""
HISTORIES = [["3"], ["9", "4", "4", "70"], ["11", "12", "13", "14", "15", "16"], []]


def lists_in_python(folder: Path, users: list[str], histories: list[list[str]]) -> Any:
    """By the exported scorer in a process without Coterie on its path."""
    program = (
        "import json, sys; from scorer import Scorer; scorer = Scorer('.'); "
        "users, histories = json.loads(sys.argv[1]); "
        "print(json.dumps([[scorer.for_user(u, 8) for u in users], "
        "[scorer.for_history(h, 8) for h in histories], "
        "[m for m in sys.modules if m.startswith('coterie')]]))"
    )
    command = [sys.executable, "-c", program, json.dumps([users, histories])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *lists, foreign = json.loads(done.stdout)
    assert foreign == []
    return lists


def lists_in_javascript(folder: Path, users: list[str], histories: list[list[str]]) -> Any:
    program = """
        import { readFile } from "node:fs/promises";
        import { Scorer } from "./scorer.mjs";
        const read = async (name) => new Uint8Array(await readFile(name)).buffer;
        const scorer = await Scorer.load(read);
        const [users, histories] = JSON.parse(process.argv[2]);
        console.log(JSON.stringify([users.map((u) => scorer.forUser(u, 8)),
                                    histories.map((h) => scorer.forHistory(h, 8))]));
    """
    (folder / "call.mjs").write_text(program)
    command = ["node", "call.mjs", json.dumps([users, histories])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LANGUAGES = {
    "python": lists_in_python,
    "javascript": pytest.param(
        lists_in_javascript,
        marks=pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    ),
}


@pytest.mark.parametrize("lists", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize(
    ("name", "settings"), [*KINDS.items(), *WITH_POPULARITY.items()], ids=lambda part: str(part)
)
def test_exported_lists_are_those_of_the_run(
    name: str,
    settings: dict[str, object],
    lists: Callable[..., Any],
    trained: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folder = trained(name, **settings)
    run = Run.load(folder)
    export(folder, tmp_path / "model", with_users=True)
    users = [str(user) for user in run.catalogue.user_ids]
    with_popularity = WITH_POPULARITY.get(name) == settings
    assert (run.prior is not None) == with_popularity
    fitted = name in FITTED and not with_popularity
    histories = HISTORIES if fitted else []
    for_users, for_histories = lists(tmp_path / "model", users, histories)
    expected = [run.recommend(user, 8) for user in users]
    expected += [run.recommend_new_user(history, 8) for history in histories]
    for found, same in zip([*for_users, *for_histories], expected, strict=True):
        assert [item for item, _ in found] == [one.item for one in same]
        scores = [score for _, score in found]
        assert scores == pytest.approx([one.score for one in same], rel=1e-4, abs=1e-5)


def test_python_scores_have_the_same_bits(trained: Callable[..., Path], tmp_path: Path) -> None:
    run = Run.load(trained("fedals"))
    export(trained("fedals"), tmp_path / "model", with_users=True)
    users = [str(user) for user in run.catalogue.user_ids]
    for_users, _ = lists_in_python(tmp_path / "model", users, [])
    for user, found in zip(users, for_users, strict=True):
        assert [score for _, score in found] == [one.score for one in run.recommend(user, 8)]


def test_users_are_exported_on_request_only(trained: Callable[..., Path], tmp_path: Path) -> None:
    export(trained("fedals"), tmp_path / "items", with_users=False)
    manifest = json.loads((tmp_path / "items" / "manifest.json").read_text())
    assert manifest["users"] == []
    assert set(manifest["arrays"]) == {"gram", "average", "item_vectors", "item_bias"}
    export(trained("fedals"), tmp_path / "users", with_users=True)
    private = {"manifest.json", "user_vectors.bin", "seen_items.bin", "seen_offsets.bin"}
    for name in private:
        mode = (tmp_path / "users" / name).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600, name
    assert not (tmp_path / "items" / "user_vectors.bin").exists()


def test_arrays_are_little_endian_and_described(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    manifest = export(trained("fedals"), tmp_path / "model", with_users=True)
    sizes = {"<f4": 4, "<f8": 8, "<i4": 4}
    for name, array in manifest["arrays"].items():
        count = 1
        for length in array["shape"]:
            count *= length
        file = tmp_path / "model" / f"{name}.bin"
        assert file.stat().st_size == count * sizes[array["type"]], name


@pytest.mark.parametrize("name", ["neumf", "userknn", "popular", "random"])
def test_other_models_are_refused(name: str, trained: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"algorithm is {name}, .*expected a factor model"):
        export(trained(name), tmp_path / "model", with_users=True)
    assert not (tmp_path / "model").exists()


def test_models_without_a_fit_for_new_users_need_users(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"algorithm is bpr, .*expected --users"):
        export(trained("bpr"), tmp_path / "model", with_users=False)
    with pytest.raises(ConfigError, match="popularity_prior=5"):
        export(trained("ease", popularity_prior=5), tmp_path / "model", with_users=True)


def test_an_occupied_folder_is_refused(trained: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="exists and is not empty"):
        export(trained("fedals"), tmp_path, with_users=False)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("scorer", ["factors", "item_item"])
def test_scorers_import_numpy_and_the_standard_library_only(scorer: str) -> None:
    from importlib import resources

    text = (resources.files("coterie.serving.scorers") / f"{scorer}.py").read_text()
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert names == {"json", "pathlib", "typing", "numpy"}
    assert "import" not in (
        resources.files("coterie.serving.scorers") / f"{scorer}.mjs"
    ).read_text().replace("important", "")
