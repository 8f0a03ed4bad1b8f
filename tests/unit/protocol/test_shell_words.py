"""What a shell expands and nobody does here: it is refused where files would be put, and told where no file is found."""

from __future__ import annotations

import pytest

from checkpoint_protocol.manifest.spec import ManifestInvalid, parse_manifest
from checkpoint_protocol.places.uris import hint_on_pattern, why_not_expanded
from tests.support.manifests import manifest


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("~/x", "~"),
        ("~", "~"),
        ("~ann/x", "~ann"),
        ("file:~/x", "~"),
        ("file://~/x", "~"),
        ("$HOME/x", "$HOME"),
        ("/data/$USER", "$USER"),
        ("/data/${USER}_x", "${USER}"),
        ("s3://lake/${env:STAGE}/x", "${env:STAGE}"),
        ("s3://lake/$STAGE/x", "$STAGE"),
    ],
)
def test_a_place_with_a_word_of_a_shell_is_refused_by_the_word(uri: str, word: str) -> None:
    why = why_not_expanded(uri)

    assert why is not None
    assert why.startswith(f"{uri} cannot be used: {word} is not expanded; write out ")


@pytest.mark.parametrize(
    "uri", ["/data/x~", "./~/x", "/a/~/x", "x$1", "/data/a$b", "az://$web/x", "s3://lake/~/x", "s3://lake/$", "data/$"]
)
def test_a_place_whose_names_only_have_such_characters_is_taken(uri: str) -> None:
    assert why_not_expanded(uri) is None


def test_a_place_that_is_written_out_as_the_message_says_is_taken() -> None:
    for uri, says, written in (
        (
            "~/x",
            "~ is not expanded; write out the path of the home folder (a folder of this name is ./~)",
            ["/home/ann/x", "./~/x"],
        ),
        ("/data/$USER", "$USER is not expanded; write out its value", ["/data/ann"]),
    ):
        with pytest.raises(ManifestInvalid) as refused:
            parse_manifest(manifest(spec__checkpoint__uri=uri))
        assert f"spec.checkpoint.uri: {uri} cannot be used: {says}" in refused.value.problems
        for each in written:
            parse_manifest(manifest(spec__checkpoint__uri=each))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"spec__checkpoint__uri": "~/x"}, "checkpoint.uri"),
        ({"spec__sink": {"lance": {"uri": "$HOME/x.lance"}}}, "sink.lance.uri"),
        ({"spec__source": {"lance": {"uri": "~/x.lance"}}}, "source.lance.uri"),
        ({"spec__code": {"path": "~/code"}}, "code.path"),
    ],
)
def test_a_manifest_that_names_a_place_so_is_refused_with_the_field(changes: dict[str, object], place: str) -> None:
    with pytest.raises(ManifestInvalid, match="is not expanded; write out") as refused:
        parse_manifest(manifest(**changes))

    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [f"spec.{place}"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("in/{a,b}.csv", "{a,b} is taken as it stands, as the wildcards are *, ** and ? only: add a path to paths for each name"),
        ("in/x[0-9].csv", "[0-9] is taken as it stands, as the wildcards are *, ** and ? only: write ? for the character"),
        (
            "/data/~/x.csv",
            "~ is taken as it stands, as the wildcards are *, ** and ? only: write out the path of the home folder",
        ),
        ("/data/$HOME/x.csv", "$HOME is taken as it stands, as the wildcards are *, ** and ? only: write out its value"),
        ("/data/${X}/*", "${X} is taken as it stands, as the wildcards are *, ** and ? only: write out its value"),
        ("in/x[*].csv", ""),
        ("in/a~b$c{d}.csv", ""),
    ],
)
def test_what_is_no_wildcard_is_told_with_what_to_write(path: str, hint: str) -> None:
    assert hint_on_pattern(path) == hint
