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
