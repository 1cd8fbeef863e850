"""The tables of report.html, as a test compares them."""

import re


def rows_of(text, title):
  """Returns the cells of the table below a title, by row."""
  table = text.split(f"<h3>{title}</h3>")[1].partition("</table>")[0]
  rows = [re.findall("<td[^>]*>(.*?)</td>", row) for row in table.split("<tr>")]
  return [row for row in rows if row]
