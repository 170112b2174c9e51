#!/usr/bin/env python3
"""DH-HMAC-CHAP by hand, from the NVM Express Base Specification 2.0, section 8.13.5, with Python's
standard library alone.

    foreign_chap.py ADDRESS PORT NQN SECRET-FILE CONTROLLER-SECRET-FILE

The target requires DH-HMAC-CHAP with these secrets. The host authenticates with each hash function,
without a group and with ffdhe2048, in one direction and in both, and uses namespace 1, which is
overwritten. Output and exit code are those of foreign_host.py.
"""

import argparse
import base64
import functools
import hashlib
import hmac
import secrets
import struct
import sys
import zlib

from foreign_host import (
    HOST_NQN, LEDGER, OK, Command, Connection, Controller, Namespace, Queue, Unusable, check, equal,
    report, zero,
)

HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
NULL, FFDHE2048 = 0, 1
AUTHENTICATION_REQUIRED = (1, 0x91)
# Message types: common messages, and those of DH-HMAC-CHAP.
COMMON, CHAP = 0, 1
CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE1 = 1, 2, 3, 4, 0xF1
FAILED, HASH_NOT_USABLE = 1, 4
# Bytes of the longest message that is received.
ROOM = 512


def ffdhe2048():
    """The prime of RFC 7919, appendix A.1, from its formula."""
    # e, scaled by the power of two in the formula, with 200 bits for rounding.
    total, term, count = 0, 1 << 1918 + 200, 0
    while term:
        total += term
        count += 1
        term //= count
    return (1 << 2048) - (1 << 1984) + ((total >> 200) + 560316 << 64) - 1


PRIME = ffdhe2048()
assert pow(2, PRIME - 1, PRIME) == 1


class Secret:
    """A secret in the form DHHC-1:hh:BASE64:"""

    def __init__(self, text):
        name, code, data, _ = text.strip().split(":")
        assert name == "DHHC-1"
        data = base64.b64decode(data)
        self.key, crc = data[:-4], data[-4:]
        assert zlib.crc32(self.key) == int.from_bytes(crc, "little")
        self.hash = HASHES.get(int(code))

    def transformed(self, nqn):
        if self.hash is None:
            return self.key
        return hmac.digest(self.key, nqn.encode() + b"NVMe-over-Fabrics", self.hash)


class Chap:
    """The secrets of a host, and what it offers."""

    def __init__(self, secret, controller_secret, hash_id, group):
        self.secret, self.controller_secret = secret, controller_secret
        self.hash_id, self.group = hash_id, group


class ChapQueue(Queue):
    """A queue that authenticates after Connect."""

    # ATR: authentication is required.
    authreq = 2

    def __init__(self, connection, size, chap):
        super().__init__(connection, size)
        self.chap = chap

    def connect(self, qid, nqn, cntlid=0xFFFF, host_nqn=HOST_NQN, **options):
        command = super().connect(qid, nqn, cntlid, host_nqn, **options)
        if self.chap is not None and command.status == OK:
            explanation = self.authenticate(nqn, host_nqn)
            if explanation is not None:
                raise Unusable(f"authentication failed with explanation {explanation}")
        return command

    def put(self, message, wanted=OK):
        raw = struct.pack("<BBBBI16x", 0, 1, 1, 0xE9, len(message))
        self.run(Command(0x7F, write=message), {"fctype": 5, "raw": raw}, wanted)

    def get(self, message_id, transaction):
        """The next message; a Failure1 instead is returned, too."""
        raw = struct.pack("<BBBBI16x", 0, 1, 1, 0xE9, ROOM)
        data = bytes(self.run(Command(0x7F, read=ROOM), {"fctype": 6, "raw": raw}).data)
        kind, found, reserved, its = struct.unpack_from("<BBHH", data)
        zero("bytes 2 to 3 of a message", struct.pack("<H", reserved))
        equal("T_ID", its, transaction)
        check(found in (message_id, FAILURE1), f"message {found:#x} instead of {message_id:#x}")
        equal("AUTH_TYPE", kind, COMMON if found == FAILURE1 else CHAP)
        if found == FAILURE1:
            equal("reason code of Failure1", data[6], 1)
        return found, data

    def authenticate(self, nqn, host_nqn):
        """Runs an exchange; returns the explanation of Failure1, or None."""
        chap, transaction = self.chap, secrets.randbits(16)
        lists = bytes([chap.hash_id]).ljust(30, b"\0") + bytes([chap.group]).ljust(30, b"\0")
        descriptor = bytes([1, 0, 1, 1]) + lists
        self.put(struct.pack("<BBHHBB", COMMON, 0, 0, transaction, 0, 1) + descriptor)
        found, data = self.get(CHALLENGE, transaction)
        if found == FAILURE1:
            return data[7]
        length, reserved, hash_id, group, size, sequence = struct.unpack_from("<BBBBHI", data, 6)
        zero("byte 7 of Challenge", [reserved])
        equal("HashID", hash_id, chap.hash_id)
        equal("DHgID", group, chap.group)
        name = HASHES[chap.hash_id]
        equal("HL", length, hashlib.new(name).digest_size)
        challenge, public = data[16:16 + length], data[16 + length:16 + length + size]
        own_public, augment = self.exchange(name, public)

        def response(key, challenge, sequence, role, first, second):
            text = augment(challenge) + struct.pack("<IHB", sequence, transaction, 0)
            text += role + first.encode() + b"\0" + second.encode()
            return hmac.digest(key, text, name)

        key = chap.secret.transformed(host_nqn)
        proof = response(key, challenge, sequence, b"HostHost", host_nqn, nqn)
        mutual = chap.controller_secret is not None
        own_challenge = secrets.token_bytes(length) if mutual else bytes(length)
        own_sequence = secrets.randbits(31) + 1 if mutual else 0
        self.put(struct.pack("<BBHHBBBBHI", CHAP, REPLY, 0, transaction, length, 0, mutual, 0,
                             len(own_public), own_sequence) + proof + own_challenge + own_public)
        found, data = self.get(SUCCESS1, transaction)
        if found == FAILURE1:
            return data[7]
        equal("HL of Success1", data[6], length)
        equal("RVALID", data[8], mutual)
        if mutual:
            key = chap.controller_secret.transformed(nqn)
            wanted = response(key, own_challenge, own_sequence, b"Controller", nqn, host_nqn)
            equal("the controller's response", data[16:16 + length], wanted)
            self.put(struct.pack("<BBHH10x", CHAP, SUCCESS2, 0, transaction))
        return None

    def exchange(self, name, public):
        """This host's public value, and the function that augments a challenge."""
        if self.chap.group == NULL:
            equal("bytes of the DH value without a group", len(public), 0)
            return b"", lambda challenge: challenge
        equal("bytes of the DH value", len(public), 256)
        other = int.from_bytes(public, "big")
        check(1 < other < PRIME - 1, "the DH value is none of the group")
        private = secrets.randbits(512)
        shared = pow(other, private, PRIME).to_bytes(256, "big")
        session = hashlib.new(name, shared).digest()
        own = pow(2, private, PRIME).to_bytes(256, "big")
        return own, lambda challenge: hmac.digest(session, challenge, name)


def use(place, nqn, chap):
    """Authenticates an admin and an I/O queue, uses the namespace, and authenticates again."""
    controller = Controller(place, nqn, queue=functools.partial(ChapQueue, chap=chap))
    controller.identify_controller(1)
    namespace = Namespace(controller, 1)
    queue = controller.io_queue(1)
    namespace.write(queue, 0, secrets.token_bytes(4 * namespace.block))
    namespace.compare_content(queue, 0, 4)
    equal("explanation of another exchange", controller.admin.authenticate(nqn, HOST_NQN), None)
    queue.connection.close()
    controller.shut_down()


def refused(place, nqn, chap, explanation):
    """The target refuses an exchange, and closes the connection."""
    queue = ChapQueue(Connection(place), 32, None)
    queue.connect(0, nqn)
    queue.chap = chap
    equal("explanation of Failure1", queue.authenticate(nqn, HOST_NQN), explanation)
    check(queue.connection.is_closed(), "something follows Failure1")


def without(place, nqn):
    """Without an exchange, no other command is executed."""
    queue = ChapQueue(Connection(place), 32, None)
    queue.connect(0, nqn)
    raw = struct.pack("<B3xI16x", 1, 0)
    queue.run(Command(0x7F), {"fctype": 4, "raw": raw}, AUTHENTICATION_REQUIRED)
    queue.run(Command(0x06, read=4096), {10: 1}, AUTHENTICATION_REQUIRED)
    queue.connection.close()


def scenarios(place, nqn, secret, controller_secret):
    wrong = Secret(base64_secret(bytes(32)))
    for hash_id, name in HASHES.items():
        for group in (NULL, FFDHE2048):
            for mutual in (None, controller_secret):
                chap = Chap(secret, mutual, hash_id, group)
                yield f"{name}, group {group}, mutual {mutual is not None}", use, (place, nqn, chap)
    yield "wrong secret", refused, (place, nqn, Chap(wrong, None, 1, FFDHE2048), FAILED)
    yield "unknown hash", refused, (place, nqn, Chap(secret, None, 9, NULL), HASH_NOT_USABLE)
    yield "without authentication", without, (place, nqn)


def base64_secret(key):
    data = key + zlib.crc32(key).to_bytes(4, "little")
    return f"DHHC-1:00:{base64.b64encode(data).decode()}:"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("nqn")
    parser.add_argument("secret", type=argparse.FileType())
    parser.add_argument("controller_secret", type=argparse.FileType())
    arguments = parser.parse_args()
    read = [Secret(file.read()) for file in (arguments.secret, arguments.controller_secret)]
    place = (arguments.address, arguments.port)
    for name, function, parameters in scenarios(place, arguments.nqn, *read):
        LEDGER.scenario = name
        try:
            function(*parameters)
        except (Unusable, OSError) as error:
            LEDGER.violations.append(f"{name}: {error or type(error).__name__}")
        print(name, flush=True)
    return report()


if __name__ == "__main__":
    sys.exit(main())
