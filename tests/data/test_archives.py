"""Pages of crawls: chunks, packings, charsets, and what is no page."""

import gzip
import zlib

import pytest

from jaxcontam.data import corpus
from tests.data.test_corpus import packed, read, warc

PAGE = b"""HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=latin-1\r\n\r
<html><head><style>p {}</style><script>var x = 1</script></head>
<body><p>Caf\xe9 <b>au</b> lait</p><p>&lt;2&gt;</p></body></html>"""


def test_pages_of_a_crawl_are_read_without_their_marks(tmp_path):
    path = tmp_path / "crawl.warc.gz"
    packed_page = PAGE.replace(b"OK\r\n", b"OK\r\nContent-Encoding: br\r\n")
    records_of_it = [
        warc("warcinfo", b"software: x"),
        warc("request", b"GET / HTTP/1.1"),
        warc("response", PAGE, "application/http; msgtype=response"),
        warc("response", b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n\x89"),
        warc("response", packed_page),
    ]
    path.write_bytes(packed(".gz", records_of_it))
    page, fault = read(path)
    assert page.line == 3
    assert page.text.split() == ["Caf\u00e9", "au", "lait", "<2>"]
    assert (fault.line, fault.reason) == (5, "a page packed by br")


def response(body, *fields):
    head = "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: text/html", *fields])
    return warc("response", f"{head}\r\n\r\n".encode() + body)


def chunks(body, size=7, end=b"0\r\n\r\n"):
    parts = (body[i : i + size] for i in range(0, len(body), size))
    return b"".join(b"%x;x=1\r\n%s\r\n" % (len(p), p) for p in parts) + end


WORDS = "a page of some words that chunks and packings cut anywhere"


HTML = f"<p>{WORDS}</p>".encode()


RAW = zlib.compressobj(wbits=-15)


CHUNKED, GZIP = "Transfer-Encoding: chunked", "Content-Encoding: gzip"


DEFLATE = "Content-Encoding: deflate"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (chunks(HTML), [CHUNKED]),
        (chunks(HTML, end=b""), [CHUNKED]),
        (chunks(HTML, size=10).replace(b"\r\n", b"\n"), [CHUNKED]),
        (chunks(gzip.compress(HTML)), [CHUNKED, GZIP]),
        (gzip.compress(HTML), ["content-encoding: X-GZIP"]),
        (zlib.compress(HTML), [DEFLATE]),
        (RAW.compress(HTML) + RAW.flush(), [DEFLATE]),
        # What many crawlers write: the page as it is, below its old header.
        (HTML, [CHUNKED, GZIP]),
    ],
)
def test_a_page_is_read_as_its_server_meant_it(tmp_path, body, fields):
    path = tmp_path / "x.warc"
    path.write_bytes(response(body, *fields))
    (page,) = read(path)
    assert page.text.split() == WORDS.split()


@pytest.mark.parametrize(
    ("body", "fields", "reason"),
    [
        (b"3\r\nabc\r\nno size\r\n", [CHUNKED], "a page in chunks of other sizes"),
        (gzip.compress(HTML)[:20] + b"\xff" * 20, [GZIP], "a page damaged in its gzip"),
        (HTML, [DEFLATE], "a page damaged in its deflate"),
        (gzip.compress(bytes(6 << 20)), [GZIP], "a page longer than 5 MiB"),
    ],
)
def test_a_page_that_cannot_be_unpacked_is_named(tmp_path, body, fields, reason):
    path = tmp_path / "x.warc"
    path.write_bytes(response(body, *fields) + warc("conversion", b"after it"))
    fault, after = read(path)
    assert (fault.reason[: len(reason)], after.text) == (reason, "after it")


@pytest.mark.parametrize("charset", ["gb2312", "gbk", "big5", "shift_jis", "utf-8"])
def test_a_page_may_name_its_charset_itself(tmp_path, charset):
    words = "明治" if charset == "shift_jis" else "大學"
    # A sign that GB 2312 lacks and pages of that name hold.
    words += "镕" if charset.startswith("gb") else ""
    page = f'<meta charset="{charset}"><p>{words}</p>'
    path = tmp_path / "x.warc"
    path.write_bytes(response(page.encode(charset.replace("gb2312", "gbk"))))
    (found,) = read(path)
    assert found.text.split() == [words]


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/html; charset=undefined", "<p>caf\u00e9", "caf\u00e9"),
        ("text/html; charset=unicode_escape", r"<p>\ud800 x", r"\ud800 x"),
        ("text/html", "<p>a<![foo[ b ]]> c", "a c"),
        ("text/html", "<p>cut short at AT&T", "cut short at AT&T"),
    ],
)
def test_a_hostile_page_is_read_as_far_as_it_goes(tmp_path, kind, body, text):
    page = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n{body}".encode()
    path = tmp_path / "x.warc"
    path.write_bytes(warc("response", page))
    (found,) = read(path)
    assert found.text.split() == text.split()


@pytest.mark.parametrize("claim", [str(2**60), "9" * 5000])
def test_a_record_that_claims_another_length_ends_its_file(tmp_path, claim):
    path = tmp_path / "x.wet"
    record = warc("conversion", b"text").replace(b": 4\r", f": {claim}\r".encode())
    path.write_bytes(record)
    (fault,) = read(path)
    assert fault.after is None


@pytest.mark.parametrize("limit", ["MAX_RECORD", "_MAX_PAGE"])
def test_a_page_that_is_too_long_is_passed_over(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(corpus, limit, 100)
    path = tmp_path / "x.wet"
    pages = [warc("conversion", b, "text/html") for b in (b"x" * 101, b"after it")]
    path.write_bytes(b"".join(pages))
    fault, after = read(path)
    assert (fault.line, after.text) == (1, "after it\n")
