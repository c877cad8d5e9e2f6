// Before the first paint: sets the chosen colours: light, dark, or as the system has it.
"use strict";
(() => {
  const chosen = (() => {
    try {
      return localStorage.getItem("anabranch-theme");
    } catch {
      return null;
    }
  })();
  document.documentElement.classList.add("scripts"); // what only scripts can do is shown from now on
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
