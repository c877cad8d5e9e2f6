// The editor of definitions: line numbers, problems that lead to their lines, files dropped into it.
export function startEditor() {
  const text = document.getElementById("text");
  const gutter = document.getElementById("gutter");
  if (!text || !gutter) return;
  const problems = new Map();
  for (const button of document.querySelectorAll("#problems button.line")) {
    const line = Number(button.dataset.line);
    const severity = button.parentElement.dataset.severity;
    if (problems.get(line) !== "error") problems.set(line, severity);
    button.addEventListener("click", () => goTo(text, line, Number(button.dataset.column)));
  }
  let lines = 0;
  const number = () => {
    const count = text.value.split("\n").length;
    if (count === lines) return;
    lines = count;
    gutter.replaceChildren(...Array.from({ length: count }, (_, index) => {
      const one = document.createElement("span");
      one.textContent = `${index + 1}\n`;
      const severity = problems.get(index + 1);
      if (severity) one.className = `at-${severity}`;
      return one;
    }));
  };
  text.addEventListener("input", number);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  number();
  const file = document.getElementById("file");
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    text.value = await file.files[0].text();
    file.value = "";
    number();
    text.focus();
  });
}

function goTo(text, line, column) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const end = start + (lines[line - 1]?.length ?? 0);
  text.focus();
  text.setSelectionRange(Math.min(start + column - 1, end), end);
  const height = text.scrollHeight / Math.max(1, lines.length);
  text.scrollTop = Math.max(0, (line - 4) * height);
}
