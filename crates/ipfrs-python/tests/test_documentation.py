"""Tests that every public name is documented, and that every example runs."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import importlib.util
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy
import pytest

import ipfrs

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CO_COROUTINE = 0x80
PyCF_ALLOW_TOP_LEVEL_AWAIT = 0x2000


def modules() -> Iterator[ModuleType]:
    """Yields all modules of the package that can be imported here."""
    yield ipfrs
    for found in pkgutil.walk_packages(ipfrs.__path__, "ipfrs."):
        is_usable = found.name != "ipfrs.fs" or importlib.util.find_spec("fsspec")
        if is_usable and found.name.rpartition(".")[2] not in ("_native", "__main__"):
            yield importlib.import_module(found.name)


def documented() -> dict[str, str]:
    """Returns docstrings with examples, by the names of their objects."""
    docs: dict[str, str] = {}
    for module in modules():
        docs[module.__name__] = module.__doc__ or ""
        for name, value in vars(module).items():
            if getattr(value, "__module__", "").partition(".")[0] != "ipfrs":
                continue
            docs[f"{value.__module__}.{name}"] = inspect.getdoc(value) or ""
            for member, inner in vars(value).items() if inspect.isclass(value) else ():
                if callable(inner) or isinstance(inner, (property, classmethod, staticmethod)):
                    docs[f"{value.__module__}.{value.__qualname__}.{member}"] = getattr(inner, "__doc__", None) or ""
    return {name: doc for name, doc in docs.items() if ">>>" in doc}


DOCS = documented()


@pytest.fixture
def names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    node: ipfrs.Node,
    client: ipfrs.Client,
    anode: ipfrs.AsyncNode,
    aclient: ipfrs.AsyncClient,
    gateway: ipfrs.Gateway,
    url: str,
) -> dict[str, Any]:
    """Names that examples may use without defining them. Each example runs in its own directory."""
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {name: getattr(ipfrs, name) for name in ipfrs.__all__}
    given.update(node=node, client=client, anode=anode, aclient=aclient, gateway=gateway, url=url)
    given.update(ipfrs=ipfrs, numpy=numpy, os=os, asyncio=asyncio, Path=Path, tmp=tmp_path)
    return given


@pytest.fixture
def awaiting(monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop) -> None:
    """Lets examples use ``await``, as in ``python -m asyncio`` and in notebooks."""

    def compiled(source: str, filename: str, mode: str, flags: int = 0, dont_inherit: bool = False) -> CodeType:
        code: CodeType = compile(source, filename, mode, flags | PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit)
        return code

    def executed(code: CodeType, names: dict[str, Any]) -> None:
        result = eval(code, names)
        if code.co_flags & CO_COROUTINE:
            loop.run_until_complete(result)

    monkeypatch.setattr(doctest, "compile", compiled, raising=False)
    monkeypatch.setattr(doctest, "exec", executed, raising=False)


@pytest.mark.usefixtures("awaiting")
@pytest.mark.parametrize("name", sorted(DOCS))
def test_examples_do_what_they_say(name: str, names: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    for module in modules():
        if f"{name}.".startswith(f"{module.__name__}."):
            scope.update(vars(module))
    test = doctest.DocTestParser().get_doctest(DOCS[name], {**scope, **names}, name, name, 0)
    told: list[str] = []
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append).failed
    assert failed == 0, "".join(told)


def public() -> Iterator[tuple[str, Callable[..., Any] | type]]:
    for name in ipfrs.__all__:
        value = getattr(ipfrs, name)
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        yield name, value
        for member in dir(value):
            inner = inspect.getattr_static(value, member)
            is_ours = any(member in vars(base) for base in value.__mro__ if base.__module__.startswith("ipfrs"))
            if is_ours and not member.startswith("_") and (callable(inner) or isinstance(inner, property)):
                yield f"{name}.{member}", inner


PUBLIC = dict(public())


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_documented_with_an_example(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name]) or ""
    assert doc, name
    if name.partition(".")[2] not in ("tell", "seek", "close"):
        assert ">>>" in doc, name


def test_help_of_add_has_all_sections() -> None:
    text = __import__("pydoc").render_doc(ipfrs.Node.add)
    for said in ("Args:", "Returns:", "Raises:", "Example:", "IsADirectoryError", "cid_version"):
        assert said in text
