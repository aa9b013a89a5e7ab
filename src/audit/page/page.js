"use strict";
(function () {
  // Style sheets open the details for print where the browser knows how; this is for those that do not.
  var closed = [];
  window.addEventListener("beforeprint", function () {
    closed = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    closed.forEach(function (details) { details.open = true; });
  });
  window.addEventListener("afterprint", function () {
    closed.forEach(function (details) { details.open = false; });
  });
  var form = document.querySelector("form.lookup");
  if (!form) { return; }
  var input = form.querySelector("input");
  var output = form.querySelector("output");
  var rows = Array.prototype.slice.call(document.querySelectorAll("#sample tbody tr"));
  var texts = rows.map(function (row) { return row.textContent.toLowerCase(); });
  function search() {
    var wanted = input.value.trim().toLowerCase();
    var found = 0;
    rows.forEach(function (row, index) {
      var key = row.cells[0].textContent.toLowerCase();
      var hit = wanted === "" || key === wanted || texts[index].indexOf(wanted) >= 0;
      row.hidden = !hit;
      row.className = wanted !== "" && key === wanted ? "exact" : "";
      found += hit ? 1 : 0;
    });
    output.textContent = wanted === "" ? "" : found + (found === 1 ? " row" : " rows");
  }
  form.hidden = false;
  form.addEventListener("submit", function (event) { event.preventDefault(); search(); });
  input.addEventListener("input", search);
})();
