// Copies the text that stands before a button. Pages are whole without this.
document.documentElement.classList.add("scripted");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const source = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    // Only secure origins have a clipboard, and only with leave: what is selected can be copied anywhere.
    getSelection().selectAllChildren(source);
    if (!document.execCommand("copy")) return;
  }
  button.classList.add("copied");
  document.getElementById("said").textContent = "Copied";
  setTimeout(() => {
    button.classList.remove("copied");
    document.getElementById("said").textContent = "";
  }, 1500);
});

// Filters and sorts the entries of a listing. Without this they stand in the order of the directory.
document.addEventListener("DOMContentLoaded", () => {
  const ROWS_PER_GROUP = 128;
  const filter = document.getElementById("filter");
  const table = document.querySelector("table");
  if (!filter || !table) return;
  const entries = [...table.querySelectorAll("tbody.entries > tr")].map((row) => {
    const name = row.querySelector("td.name").textContent;
    const size = Number(row.querySelector("td.size").dataset.bytes ?? -1);
    return { row, name, size, lower: name.toLowerCase() };
  });
  const names = new Intl.Collator(undefined, { numeric: true });
  const orders = { name: (a, b) => names.compare(a.name, b.name), size: (a, b) => a.size - b.size };
  let sorted = entries;

  const show = () => {
    const wanted = filter.value.trim().toLowerCase();
    const shown = sorted.filter((entry) => entry.lower.includes(wanted));
    table.querySelectorAll("tbody.entries").forEach((group) => group.remove());
    for (let from = 0; from < shown.length; from += ROWS_PER_GROUP) {
      const rows = shown.slice(from, from + ROWS_PER_GROUP).map((entry) => entry.row);
      const group = document.createElement("tbody");
      group.className = rows.length === ROWS_PER_GROUP ? "entries full" : "entries";
      group.setAttribute("role", "rowgroup");
      group.append(...rows);
      table.append(group);
    }
    document.getElementById("said").textContent = wanted && `${shown.length} of ${entries.length} entries`;
  };

  filter.addEventListener("input", show);
  filter.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    filter.value = "";
    show();
  });
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (!button) return;
    // Ascending, descending, and back to the order of the directory.
    const heading = button.closest("th");
    const next = { ascending: "descending", descending: null }[heading.getAttribute("aria-sort")];
    const direction = next === undefined ? "ascending" : next;
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    if (direction) heading.setAttribute("aria-sort", direction);
    const order = orders[button.dataset.key];
    const sign = direction === "descending" ? -1 : 1;
    sorted = direction ? [...entries].sort((a, b) => sign * order(a, b)) : entries;
    show();
  });
  // Browsers keep the text of a field across a reload.
  filter.disabled = entries.length === 0;
  table.querySelectorAll("button.sort").forEach((button) => (button.disabled = false));
  if (filter.value) show();
});
