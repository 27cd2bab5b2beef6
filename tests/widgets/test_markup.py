"""Trees of elements: what may be in them, and how they become HTML."""

from __future__ import annotations

import re
from pathlib import Path

import autokernel_widgets
import pytest
from autokernel_widgets import markup
from autokernel_widgets.markup import node, text_of, to_html

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'


def test_text_is_escaped_in_content_and_in_attributes():
    shown = to_html(node("p", HOSTILE, title=HOSTILE))

    assert "<script" not in shown and "<img" not in shown
    assert shown.count('"') == 2  # those around the attribute


@pytest.mark.parametrize("tag", ["script", "iframe", "img", "a", "style", "object", "foreignObject"])
def test_a_tag_that_could_run_or_load_something_is_refused(tag):
    with pytest.raises(ValueError, match="not shown"):
        node(tag)


@pytest.mark.parametrize("attribute", ["onclick", "href", "src", "style", "srcset", "formaction", "xlink_href"])
def test_an_attribute_that_could_run_or_load_something_is_refused(attribute):
    with pytest.raises(ValueError, match="not shown"):
        node("p", **{attribute: "javascript:alert(1)"})


def test_a_tree_from_elsewhere_loses_what_is_not_on_the_list():
    assert to_html(["p", {"onclick": "alert(1)", "class": "x"}, "text"]) == '<p class="x">text</p>'
    with pytest.raises(ValueError, match="not shown"):
        to_html(["script", {}, "alert(1)"])


def test_true_is_an_attribute_without_value_and_none_leaves_it_out():
    assert node("details", open=True, title=None, disabled=False)[1] == {"open": ""}


def test_static_html_has_no_controls_because_nobody_would_hear_them():
    tree = node("div", node("button", "Keep", data_action="keep"), node("label", node("select")), node("p", "text"))

    assert to_html(tree) == "<div><p>text</p></div>"


def test_the_text_of_a_tree_is_its_text_in_order():
    assert text_of(node("p", "one ", node("strong", "two"), " three")) == "one two three"


def test_the_browser_knows_the_same_tags_and_attributes():
    source = (Path(autokernel_widgets.__file__).parent / "common.js").read_text()
    tags = " ".join(re.findall(r'"([a-z0-9 ]+)"', source.partition("const ATTRIBUTE")[0]))
    attributes = "".join(re.findall(r'"([^"]*)"', source.partition("new RegExp(")[2].partition(");")[0]))

    assert set(tags.split()) == set(markup.TAGS)
    assert attributes == f"^({markup.ATTRIBUTES.pattern})$"


def test_the_scripts_never_turn_text_into_html_and_load_nothing():
    for file in Path(autokernel_widgets.__file__).parent.glob("*.js"):
        source = file.read_text()
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "https://",
            "fetch(",
        ):
            assert forbidden not in source, (file.name, forbidden)
