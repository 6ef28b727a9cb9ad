// A text editor with highlighted syntax, marked mistakes and completion.

import { h } from "./dom.js";

/**
 * @typedef {{ start: number, end: number, kind: string }} Part
 * @typedef {{ start: number, end: number, message: string }} Mistake
 * @typedef {{ label: string, insert: string, detail: string, description: string }} Proposal
 * @typedef {{ parts: Part[], mistakes: Mistake[], proposals: Proposal[], from: number }} Look
 */

/** Maximum number of proposals in the list. */
const MOST_PROPOSALS = 50;

export class Editor {
  /**
   * @param {string} label Name for screen readers.
   * @param {(text: string, cursor: number) => Look} look
   * @param {() => void} change Called after each change of the text.
   */
  constructor(label, look, change) {
    this.look = look;
    this.change = change;
    /** @type {Proposal[]} */
    this.proposals = [];
    this.chosen = 0;
    this.from = 0;
    const id = `editor-${label.toLowerCase()}`;
    this.area = /** @type {HTMLTextAreaElement} */ (
      h("textarea", {
        "aria-label": label, id, spellcheck: "false", autocomplete: "off", autocapitalize: "off", role: "combobox",
        "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`, "aria-describedby": `${id}-mistakes`,
        input: () => this.changed(true), keydown: (event) => this.key(event), scroll: () => this.align(),
        click: () => this.hide(), blur: () => setTimeout(() => this.hide(), 200),
      })
    );
    this.layer = h("pre", { "aria-hidden": "true" });
    this.list = h("ul", { id: `${id}-list`, role: "listbox", "aria-label": "Completion", hidden: true });
    this.mistakes = h("ul", { id: `${id}-mistakes`, class: "mistakes", "aria-live": "polite" });
    this.element = h("div", { class: "editor" }, h("div", { class: "text" }, this.layer, this.area, this.list), this.mistakes);
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    this.area.value = text;
    this.changed(false);
  }

  /** @param {boolean} completes */
  changed(completes) {
    const { parts, mistakes, proposals, from } = this.look(this.text, this.area.selectionStart);
    this.paint(parts, mistakes);
    const shown = mistakes.slice(0, 5).map((mistake) => {
      const line = this.text.slice(0, mistake.start).split("\n").length;
      return h("li", {}, `Line ${line}: ${mistake.message}`);
    });
    this.mistakes.replaceChildren(...shown);
    // Without a word before the cursor, a list would cover what is being read.
    const asks = completes && this.area.selectionStart > from;
    this.offer(asks ? proposals : [], from);
    this.change();
  }

  /**
   * @param {Part[]} parts
   * @param {Mistake[]} mistakes
   */
  paint(parts, mistakes) {
    const text = this.text;
    const painted = document.createDocumentFragment();
    let at = 0;
    for (const part of parts) {
      painted.append(text.slice(at, part.start));
      const isWrong = mistakes.some(({ start, end }) => start < part.end && part.start < end);
      painted.append(h("span", { class: isWrong ? `${part.kind} wrong` : part.kind }, text.slice(part.start, part.end)));
      at = part.end;
    }
    // The last line counts only with something behind it.
    painted.append(text.slice(at), "\n ");
    this.layer.replaceChildren(painted);
    this.align();
  }

  align() {
    this.layer.scrollTop = this.area.scrollTop;
    this.layer.scrollLeft = this.area.scrollLeft;
  }

  /**
   * @param {Proposal[]} proposals
   * @param {number} from
   */
  offer(proposals, from) {
    this.proposals = proposals.slice(0, MOST_PROPOSALS);
    [this.chosen, this.from] = [0, from];
    const items = this.proposals.map((proposal, index) =>
      h(
        "li",
        { role: "option", id: `${this.list.id}-${index}`, title: proposal.description, mousedown: (event) => { event.preventDefault(); this.chosen = index; this.complete(); } },
        h("b", {}, proposal.label), " ", h("span", {}, proposal.detail),
      ),
    );
    this.list.replaceChildren(...items);
    this.list.hidden = items.length === 0;
    this.area.setAttribute("aria-expanded", String(items.length > 0));
    this.mark();
    if (items.length > 0) this.place();
  }

  mark() {
    for (const [index, item] of [...this.list.children].entries()) item.setAttribute("aria-selected", String(index === this.chosen));
    const chosen = this.list.children[this.chosen];
    chosen?.scrollIntoView({ block: "nearest" });
    if (chosen) this.area.setAttribute("aria-activedescendant", chosen.id);
    else this.area.removeAttribute("aria-activedescendant");
  }

  /** Puts the list below the line of the cursor. */
  place() {
    const before = this.text.slice(0, this.from).split("\n");
    const style = getComputedStyle(this.area);
    const line = parseFloat(style.lineHeight);
    const top = before.length * line + parseFloat(style.paddingTop) - this.area.scrollTop;
    this.list.style.top = `${top}px`;
    this.list.style.left = `calc(${before[before.length - 1].length}ch + ${style.paddingLeft} - ${this.area.scrollLeft}px)`;
  }

  hide() {
    this.offer([], 0);
  }

  complete() {
    const { insert } = this.proposals[this.chosen];
    this.area.setRangeText(insert, this.from, this.area.selectionStart, "end");
    this.changed(false);
    this.area.focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isOpen = this.proposals.length > 0;
    if (event.ctrlKey && event.key === " ") {
      const { proposals, from } = this.look(this.text, this.area.selectionStart);
      this.offer(proposals, from);
    } else if (isOpen && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      const step = event.key === "ArrowDown" ? 1 : this.proposals.length - 1;
      this.chosen = (this.chosen + step) % this.proposals.length;
      this.mark();
    } else if (isOpen && ["Enter", "Tab"].includes(event.key) && !event.ctrlKey) this.complete();
    else if (isOpen && event.key === "Escape") this.hide();
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) this.newLine();
    else return;
    event.preventDefault();
  }

  /** Begins a line with the indentation of the last one, and more behind a bracket. */
  newLine() {
    const before = this.text.slice(0, this.area.selectionStart);
    const indentation = /^[ ]*/.exec(before.slice(before.lastIndexOf("\n") + 1))?.[0] ?? "";
    const isOpened = /[{(\[]\s*$/.test(before);
    const isClosed = /^[ ]*[})\]]/.test(this.text.slice(this.area.selectionEnd));
    const inner = `\n${indentation}${isOpened ? "  " : ""}`;
    this.area.setRangeText(isOpened && isClosed ? `${inner}\n${indentation}` : inner, this.area.selectionStart, this.area.selectionEnd, "end");
    if (isOpened && isClosed) this.area.selectionStart = this.area.selectionEnd = before.length + inner.length;
    this.changed(false);
  }
}
