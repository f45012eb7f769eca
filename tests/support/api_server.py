"""A server of this process that answers as a test says."""

import contextlib
import http.server
import json
import ssl
import threading


def chat(text, **fields):
    """A whole answer of the chat protocol."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}} | fields
    return 200, {"choices": [choice], "model": "m"}


def prompt_of(body):
    """The words of the last message."""
    return body["messages"][-1]["content"]


@contextlib.contextmanager
def serving(answer, certificate=None):
    """Yields (URL, requests); a request is (path, headers, body).

    `answer(body, number)` gives (status, JSON or bytes, *headers), or writes to the
    handler that it gets as a third argument and gives None. With a certificate the
    server speaks TLS.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen.append((self.path, dict(self.headers), body))
                number = len(seen)
            found = answer(body, number, self)
            if found is None:
                self.close_connection = True
                return
            status, value, *headers = found
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for name, words in headers:
                self.send_header(name, words)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            """Clients that hang up are part of the tests."""

    seen, lock = [], threading.Lock()
    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
