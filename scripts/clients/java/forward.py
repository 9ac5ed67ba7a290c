"""Takes connections at any address of this machine and passes them on: PORT is printed first.

Dubbo for Java never calls 127.0.0.1: it puts the machine's own address in its place. A server that
listens on loopback only, as it does without authentication, is reached through this.
"""

import socket
import sys
import threading


def pump(source, target):
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
    except OSError:
        pass
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    listener = socket.create_server(("0.0.0.0", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((host, int(port)))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=pump, args=ends, daemon=True).start()


main()
