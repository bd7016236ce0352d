# SPDX-License-Identifier: Apache-2.0
"""A command whose standard error is a terminal."""
import fcntl, os, pty, struct, subprocess, termios, threading

import support


class Terminal:
    def __init__(self, columns, *arguments, term="xterm", environment=os.environ):
        self.master, slave = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen([support.BINARY, *map(str, arguments)],
                                        stderr=slave,
                                        stdout=subprocess.DEVNULL,
                                        stdin=subprocess.DEVNULL,
                                        env={**environment, "TERM": term})
        os.close(slave)
        self.text = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        try:
            while piece := os.read(self.master, 65536):
                self.text += piece
        except OSError:
            pass

    def end(self):
        """Waits for the end of the command and of what it wrote; returns its status."""
        status = self.process.wait(120)
        self.reader.join(120)
        os.close(self.master)
        return status

    def drawn(self):
        """The lines as drawn over one another, without what begins and ends them."""
        return [line.split("\r\n")[0] for line in self.text.decode().split("\r\x1b[K")[1:]]
