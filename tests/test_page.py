"""The page of predict.py --serve in Chromium: clicked, typed into and read."""

import json
import re

import pytest

from bert.serving import exported_model
import browser
import tiny_models

pytest.importorskip("onnxruntime", reason="needs requirements/onnx.txt")
pytestmark = pytest.mark.skipif(
  not browser.is_installed(), reason="needs chromium and chromedriver"
)


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
  addresses = {}

  def start(case):
    if case not in addresses:
      folder = tmp_path_factory.mktemp(case)
      flags = {}
      if case == "features":
        tiny_models.write_masked_lm(folder)
        tiny_models.write_modules(folder, max_seq_length=16)
        flags = {"model_dir": "", "vocab_file": "", "model": folder}
      else:
        tiny_models.write_case(folder, case)
      path = tiny_models.export_onnx(folder, case, **flags)
      model = exported_model.ExportedModel(path)
      addresses[case] = browser.serve(model)
    return addresses[case]

  return start


def open_page(address, **options):
  """Opens the page, which answers an example, and empties its boxes."""
  page = browser.Browser(address, **options)
  answered(page)
  page.script(
    "for (const area of document.querySelectorAll('textarea')) area.value = '';"
    "$('note').textContent = ''"
  )
  return page


def answered(page):
  return page.wait("document.querySelector('#note').textContent")


ERROR = "document.querySelector('#error').textContent"


def fill(page, **values):
  """Fills in the boxes of inputs."""
  for name, value in values.items():
    code = f"document.querySelector('#in-{name}').value = arguments[0]"
    page.script(code, value)


def give_file(page, path, content):
  path.write_text(content, encoding="latin-1")
  page.type("#file", str(path))


def read_rows(page, selector):
  """Returns the texts of the elements in each of those found."""
  return page.script(
    "return [...document.querySelectorAll(arguments[0])].map(r =>"
    "[...r.children].map(c => c.textContent))",
    selector,
  )


def bars(page):
  return read_rows(page, "#answer .row")


@pytest.fixture(scope="module")
def classifier(serve):
  with open_page(serve("single_label")) as page:
    yield page


def test_typing_and_clicking(classifier):
  assert classifier.text("h1") == "single_label"
  assert "Classify a text; 2 layers" in classifier.text("#facts")
  assert classifier.text("#labels") == "Labels: neg, pos"
  classifier.type("#in-text", "the film was very good")
  classifier.click("#ask")
  answered(classifier)
  assert sorted(row[0] for row in bars(classifier)) == ["neg", "pos"]
  # The answer is large, and there once.
  assert bars(classifier)[0][0] == classifier.text("#answer h2")
  code = "return [...document.querySelectorAll('#answer h2, #answer b')]"
  assert len(classifier.script(code)) == 2
  shares = [float(row[2].removesuffix(" %")) for row in bars(classifier)]
  assert sum(shares) == pytest.approx(100, abs=0.2) and shares[0] >= shares[1]
  assert classifier.faults() == []


def test_an_example_is_answered_when_the_page_opens(serve):
  with browser.Browser(serve("single_label")) as page:
    answered(page)
    assert bars(page)
    code = "return document.querySelector(arguments[0])"
    shown = page.script(f"{code}.textContent", "#examples button")
    assert shown == "A dog runs on grass. | An animal is outside."
    text = page.script(f"{code}.value", "#in-text_pair")
    assert text == "An animal is outside."
    for part in ("#files", "#programs"):
      assert not page.script(f"{code}.open", part)
    answer, folded = (
      page.script(f"{code}.getBoundingClientRect().bottom", part)
      for part in ("#answer", "#files")
    )
    assert answer < folded


def test_the_file_button_and_the_link_have_the_style_of_the_page(serve):
  with open_page(serve("single_label"), dark=True) as page:
    code = "const s = getComputedStyle($(arguments[0]), arguments[1]);"
    code += "return [s.backgroundColor, s.color, s.borderRadius, s.fontSize]"
    ours = page.script(code, "weigh", None)
    assert page.script(code, "file", "::file-selector-button") == ours
    assert page.script(code, "link", None)[1] == "rgb(86, 180, 233)"


def ask_good_film(page):
  """Types "good film" and sends it by Ctrl+Enter; waits for the answer."""
  fill(page, text="")
  page.script("document.querySelector('#note').textContent = ''")
  keys = "good film" + browser.CONTROL + browser.ENTER
  page.type("#in-text", keys)
  answered(page)


def test_words_that_mattered(classifier):
  ask_good_film(classifier)
  classifier.click("#weigh")
  text = classifier.wait("document.querySelector('#weighed').textContent")
  assert text.startswith("of the text: blue speaks for the answer")
  code = "return [...document.querySelectorAll('#shaded mark')]"
  marks = classifier.script(code + ".map(m => [m.textContent, m.title])")
  assert [word for word, _ in marks] == ["good", "film"]
  assert all(title.endswith("without it") for _, title in marks)


def test_control_and_enter_ask(classifier):
  ask_good_film(classifier)
  assert bars(classifier) and classifier.faults() == []


def test_attention_of_all_heads(classifier):
  ask_good_film(classifier)
  classifier.click("#attend")
  classifier.wait("document.querySelectorAll('#heads button').length === 5")
  assert classifier.text("#chosen") == "layer 0, head 0"
  count = "document.querySelectorAll('#map [data-cell]').length"
  assert classifier.script(f"return {count}") == 16
  left = "document.querySelector('#heads button').getBoundingClientRect().left"
  grid = "document.querySelector('#heads').getBoundingClientRect().left"
  assert classifier.script(f"return {left} - {grid}") < 100
  classifier.type("#heads button", "\ue014")  # Arrow to the right.
  assert classifier.text("#chosen") == "layer 0, head 1"
  classifier.click("#heads button:last-child")
  assert classifier.text("#chosen") == "mean of all heads"
  classifier.click("#arcs")
  assert classifier.script(f"return {count}") == 0
  code = "return document.querySelectorAll('path').length"
  assert classifier.script(code) > 3
  classifier.click("#arcs")


def test_errors_clear_the_answer_and_nothing_is_not_asked(classifier):
  ask_good_film(classifier)
  fill(classifier, text=" ")
  classifier.click("#ask")
  assert classifier.wait(ERROR) == "Nothing to answer: type a text."
  code = "return document.querySelector('#answer').innerHTML"
  assert classifier.script(code) == ""
  fill(classifier, text="a " * 100_000)
  classifier.click("#ask")
  assert "exceeds max_body" in classifier.wait(ERROR)


def test_a_file_of_texts(classifier, tmp_path):
  content = "the film\tbad plot\n<b>good</b>\n\n"
  give_file(classifier, tmp_path / "texts.tsv", content)
  classifier.wait("document.querySelectorAll('#table tr').length === 3")
  rows = read_rows(classifier, "#table tr")
  assert rows[0] == ["text", "text_pair", "answer", "probability"]
  assert rows[1][:2] == ["the film", "bad plot"]
  assert rows[2][:2] == ["<b>good</b>", ""] and rows[2][2] in ("neg", "pos")
  assert re.fullmatch(r"0\.[0-9]{6}", rows[1][3])
  assert classifier.script("return !document.querySelector('#download').hidden")


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    (
      "dev.tsv",
      "the film\tbad plot\npos\tgood\tfilm\n",
      "3 columns, expected text, text_pair: pos\tgood\tfilm",
    ),
    ("latin.txt", "caf\xe9\n", "not UTF-8"),
    ("texts.csv", "text,label\n", "expected a file of lines, .tsv or .jsonl"),
  ],
)
def test_after_a_bad_file_no_answers_to_another_are_shown(
  classifier, tmp_path, name, content, message
):
  give_file(classifier, tmp_path / "good.txt", "film\n")
  classifier.wait("document.querySelectorAll('#table tr').length === 2")
  give_file(classifier, tmp_path / name, content)
  assert classifier.wait(ERROR) == f"{name}: {message}"
  assert not classifier.script("return document.querySelector('#table tr')")


def test_a_file_of_json_lines(classifier, tmp_path):
  accepted = "return document.querySelector('#file').accept.split(',')"
  assert ".jsonl" in classifier.script(accepted)
  content = '{"id": 7, "text": "the film", "text_pair": "bad plot"}\n'
  give_file(classifier, tmp_path / "texts.jsonl", content)
  classifier.wait("document.querySelectorAll('#table tr').length === 2")
  cells = read_rows(classifier, "#table tr")[1]
  assert cells[:2] == ["the film", "bad plot"]


def test_a_long_file_is_shown_in_part(classifier, tmp_path):
  give_file(classifier, tmp_path / "many.txt", "good film\n" * 201)
  caption = classifier.wait("document.querySelector('#table caption')")
  assert caption and classifier.text("#table caption") == (
    "200 of 201 shown; the download has all"
  )


def test_links_and_programs(classifier, serve):
  ask_good_film(classifier)
  if not classifier.script("return $('programs').open"):
    classifier.click("#programs summary")
  assert classifier.text("#link") == "Link to this text"
  link = classifier.script("return document.querySelector('#link').href")
  with browser.Browser(link) as page:
    answered(page)
    code = "return document.querySelector('#in-text').value"
    assert page.script(code) == "good film"
  assert 'print(model({"text":"good film"' in classifier.text("#python")
  assert '-d \'{"text":"good film"' in classifier.text("#curl")


def test_attention_of_long_texts(classifier):
  classifier.script(
    "maps = {tokens: Array(400).fill('a')};"
    "const map = new Float32Array(160000); map[7] = 0.5;"
    "thumbnail($('heads'), map, null, 'long');"
    "drawArcs(map, maps.tokens);"
  )


def test_more_than_one_body_holds(classifier):
  fill(classifier, text="good film " * 150)
  classifier.click("#ask")
  classifier.wait("last && request.text.length === 1500")
  classifier.script("$('weighed').textContent = ''")
  classifier.click("#weigh")
  classifier.wait("$('weighed').textContent || $('error').textContent")
  assert classifier.text("#error") == ""
  count = "return document.querySelectorAll('#shaded mark').length"
  assert classifier.script(count) == 300


def test_choices_and_the_number_of_a_bad_line(serve, tmp_path):
  rows = "the film\twas\tgood\tbad\n" * 300 + "the film\twas\tgood\n"
  with open_page(serve("multiple_choice")) as page:
    choices = "good\n\ufeff\n\x1c\n\x85\nbad"
    fill(page, context="the film", choices=choices)
    page.click("#ask")
    answered(page)
    shares = page.script("return last.probabilities")
    shown = {name: share for name, _, share in bars(page)}
    assert [shown[name] for name in ("good", "\ufeff", "bad")] == [
      f"{100 * share:.1f} %" for share in shares
    ]
    give_file(page, tmp_path / "choices.tsv", rows)
    assert page.wait(ERROR).startswith("inputs[300]: choices: found 1")


CASES = {
  "question_answering": ["question", "context"],
  "tagging": ["text"],
  "multiple_choice": ["context", "question", "choices"],
  "multi_label": ["text", "text_pair"],
}


@pytest.mark.parametrize("case", CASES)
def test_tasks(serve, case):
  request = tiny_models.CASES[case].requests[0]
  with open_page(serve(case), width=390, dark=True) as page:
    for name in CASES[case]:
      value = request.get(name, "")
      text = "\n".join(value) if isinstance(value, list) else value
      page.type(f"#in-{name}", text)
    page.click("#ask")
    answered(page)
    if case == "tagging":
      legend = page.text(".legend")
      assert "LOC" in legend and "PER" in legend
      assert page.text("#labels") == "Entities: LOC, PER"
    else:
      assert len(bars(page)) == (5 if case == "question_answering" else 2)
      assert page.text("#answer h2")
      # At this width, bars are as long as the page lets them.
      code = "return document.querySelector('.track').clientWidth"
      assert page.script(code) > 250
    assert page.script("return document.documentElement.scrollWidth") <= 390
    page.click("#examples button")
    page.wait("!document.querySelector('.spinner')")
    assert page.text("#error") == ""
    assert page.faults() == []


def test_sentences_are_compared_and_searched_in_a_file(serve, tmp_path):
  with open_page(serve("features"), width=390, dark=True) as page:
    assert (
      page.script("return $('form').querySelectorAll('textarea').length") == 1
    )
    fill(page, text="good film\n\nbad plot\ngood film")
    page.click("#ask")
    answered(page)
    head, first, second, third = read_rows(page, ".heat tr")
    assert head == ["", "1", "2", "3"]
    assert [row[0] for row in (first, second, third)] == [
      "1  good film",
      "2  bad plot",
      "3  good film",
    ]
    assert first[1:] == third[1:] and first[1] == first[3] == "1.00"
    assert second[1] == first[2] != "1.00"
    code = "return last.vectors.map(v => Math.hypot(...v))"
    assert page.script(code) == pytest.approx([1.0] * 3, abs=1e-4)
    # Blank lines are counted, as by search.py.
    content = "a bad plot\n\n \r\ngood film\r\nthe cast\n"
    give_file(page, tmp_path / "lines.txt", content)
    page.wait("document.querySelectorAll('#table tr').length === 4")
    assert page.text("#table caption") == "Most similar to: good film"
    rows = read_rows(page, "#table tr")
    assert rows[0] == ["similarity", "line", "text"]
    assert rows[1] == ["1.0000", "4", "good film"]
    shares = [float(row[0]) for row in rows[1:]]
    assert shares == sorted(shares, reverse=True)
    # Another text is searched for in the same file; alone, it is a vector.
    fill(page, text="the cast")
    page.script("$('note').textContent = ''")
    page.click("#ask")
    answered(page)
    assert read_rows(page, "#table tr")[1] == ["1.0000", "5", "the cast"]
    assert page.text("#answer p") == "16 numbers"
    assert page.script("return document.documentElement.scrollWidth") <= 390
    fill(page, text="a\n" * 51)
    page.click("#ask")
    assert page.wait(ERROR) == "51 lines to compare, expected 50 at most"
    assert page.faults() == []


def test_an_answer_of_an_unknown_kind_is_shown_as_json(serve, tmp_path):
  # test_new_task.py opens the page of such a model; here only its name is new.
  with open_page(serve("single_label")) as page:
    page.script("model.kind = 'ordinal'")
    fill(page, text="the film")
    page.click("#ask")
    answered(page)
    answer = json.loads(page.text("#answer pre"))
    assert answer == page.script("return last")
    assert {"label", "probabilities"} <= {*answer}
    assert page.script("return $('words').hidden")
    # In a table of many, too, if none of its names is known.
    cells = page.script("return summary({grade: 3, truncated: false})")
    assert cells == ['{"grade":3,"truncated":false}', ""]
    assert page.faults() == []


def test_no_answer_is_none_on_the_page(serve):
  spans = [{"answer": "Rome", "start": 0, "end": 4, "probability": 0.3}]
  with open_page(serve("question_answering")) as page:
    shown = page.script(
      "const box = document.createElement('div');"
      "request = {context: 'Rome is old.'};"
      "show.question_answering(box, {answer: '', start: null, end: null,"
      " probability: 0.6, no_answer_odds: 1, runners_up: arguments[0]});"
      "return [box.querySelector('h2').textContent,"
      " box.querySelector('mark').textContent]",
      spans,
    )
    assert shown == ["no answer", "Rome"]
    # Beside another answer, no answer has odds only.
    found = page.script(
      "return certainty({answer: 'Rome', probability: 0.5, runners_up: [],"
      " no_answer_odds: Math.log(0.25)}, {answer: ''})"
    )
    assert found == pytest.approx(0.125)


def test_labels_that_mark_no_entities_are_shown_as_they_are(serve):
  with open_page(serve("tagging")) as page:
    found = page.script(
      "return [['O', 'B-PER', 'I-LOC'], ['NN', 'B-X'], ['B-a', 'neg'],"
      " ['S', 'O', 'E-b-c']].map(entityTypes)"
    )
    assert found == [["LOC", "PER"], [], [], ["b-c"]]


def test_long_answers_stand_above_their_bars(serve):
  with open_page(serve("multiple_choice")) as page:
    fill(page, context="the film", choices="good\n" + "a very bad film " * 4)
    page.click("#ask")
    answered(page)
    code = (
      "return [...document.querySelectorAll('#answer .row')].map(row => {"
      " const [name, track] = [...row.children].map("
      "c => c.getBoundingClientRect());"
      " return [row.textContent.length > 30, name.bottom <= track.top]; })"
    )
    assert sorted(page.script(code)) == [[False, False], [True, True]]


def test_tags_without_types_have_colours(serve):
  with open_page(serve("tagging")) as page:
    page.script(
      "model.labels = ['B', 'E', 'S']; request = {text: 'ab c'};"
      "show.tagging($('answer'), {entities: ["
      " {start: 0, end: 2, type: '', text: 'ab', probability: 0.9}]})"
    )
    style = (
      "return document.querySelector('#answer .text mark').style.background"
    )
    assert page.script(style).startswith("rgba(230, 159, 0")


def test_the_only_word_cannot_be_left_out(serve):
  with open_page(serve("multiple_choice")) as page:
    fill(page, context="film", choices="good\nbad")
    page.click("#ask")
    answered(page)
    page.click("#weigh")
    said = page.wait("document.querySelector('#weighed').textContent")
    assert said == "the context has only one word"
    assert page.text("#answer h2") and page.text("#error") == ""
