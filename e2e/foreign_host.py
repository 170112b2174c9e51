#!/usr/bin/env python3
"""An NVMe/TCP host that shares nothing with Switchyard.

Written from the NVM Express Base Specification 2.0, the NVM Command Set Specification 1.0 and the
NVMe/TCP Transport Specification 1.0 with Python's standard library alone. It uses a target in every
way that it knows, and looks at every field of every PDU that it receives; reserved bytes have to be
zero. Each thing that is not as it has to be is a violation.

    foreign_host.py ADDRESS PORT NQN [--nsid 1] [--seed 1] [--notice] [--dissected]

The namespace is overwritten. With --notice it prints "waiting for a notice" and expects that
somebody then changes the target's namespaces. With --dissected it leaves out what
Wireshark's dissector (4.0) takes for malformed: alignment of data, the error log, and pieces of a log
page. Exit code 0 without a violation, 1 with violations, 2
where the target could not be used.
"""

import argparse
import random
import socket
import struct
import sys
import time
from collections import Counter

# How long one receive may take, in seconds: what exceeds it hangs.
PATIENCE = 60

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:1f3aaf1e-5bc0-4a2b-9d55-0b3e8f6a7c21"
HOST_ID = bytes.fromhex("1f3aaf1e5bc04a2b9d550b3e8f6a7c21")

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CMD, RESP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
NAMES = {
    ICREQ: "ICReq", ICRESP: "ICResp", H2C_TERM: "H2CTermReq", C2H_TERM: "C2HTermReq",
    CMD: "CapsuleCmd", RESP: "CapsuleResp", H2C_DATA: "H2CData", C2H_DATA: "C2HData", R2T: "R2T",
}
HLEN = {ICRESP: 128, C2H_TERM: 24, RESP: 24, C2H_DATA: 24, R2T: 24}
HDGSTF, DDGSTF, LAST, SUCCESS = 1, 2, 4, 8
# Flags that a PDU may carry.
FLAGS = {ICRESP: 0, C2H_TERM: 0, RESP: HDGSTF, C2H_DATA: HDGSTF | DDGSTF | LAST | SUCCESS, R2T: HDGSTF}

# Status codes as (SCT, SC).
OK = (0, 0x00)
INVALID_OPCODE = (0, 0x01)
INVALID_FIELD = (0, 0x02)
ABORTED = (0, 0x07)
FAILED_FUSED = (0, 0x09)
MISSING_FUSED = (0, 0x0A)
INVALID_NAMESPACE = (0, 0x0B)
SEQUENCE_ERROR = (0, 0x0C)
SGL_LENGTH_INVALID = (0, 0x0F)
SGL_TYPE_INVALID = (0, 0x11)
SGL_OFFSET_INVALID = (0, 0x16)
TRANSIENT_TRANSPORT = (0, 0x22)
ATOMIC_UNIT_EXCEEDED = (0, 0x14)
LBA_OUT_OF_RANGE = (0, 0x80)
AER_LIMIT = (1, 0x05)
INVALID_LOG_PAGE = (1, 0x09)
FEATURE_NOT_CHANGEABLE = (1, 0x0E)
CONNECT_FORMAT = (1, 0x80)
CONNECT_INVALID = (1, 0x82)
COMPARE_FAILURE = (2, 0x85)

# The polynomial of CRC32C, reflected.
CASTAGNOLI = 0x82F63B78


def make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        table.append(value)
    return table


TABLE = make_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


class Unusable(Exception):
    """Nothing sensible can be done with the connection any more."""


class Ledger:
    """What was seen, and what was wrong with it."""

    def __init__(self):
        self.checks = 0
        self.pdus = Counter()
        self.commands = 0
        self.digests = 0
        self.bytes = Counter()
        self.most_r2ts = 0
        self.violations = []
        self.scenario = ""

    def check(self, holds, text):
        self.checks += 1
        if not holds:
            self.violations.append(f"{self.scenario}: {text}")

    def equal(self, what, is_, wanted):
        self.check(is_ == wanted, f"{what} is {is_!r}, not {wanted!r}")

    def zero(self, what, data):
        self.check(not any(data), f"{what} is reserved and holds {bytes(data).hex()}")


LEDGER = Ledger()
check, equal, zero = LEDGER.check, LEDGER.equal, LEDGER.zero


def le(data):
    return int.from_bytes(data, "little")


def text_of(field):
    """A string that ends with its field, with spaces, or with zeroes."""
    return field.split(b"\0")[0].decode("ascii", "replace").rstrip(" ")


class Connection:
    """A TCP connection that has been initialised."""

    def __init__(self, place, hdgst=False, ddgst=False, hpda=0, maxr2t=0, initialise=True):
        self.socket = socket.create_connection(place, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.hdgst, self.ddgst = False, False
        self.alignment, self.maxr2t = (hpda + 1) * 4, maxr2t
        self.cpda, self.maxh2cdata = 0, 4096
        if initialise:
            self.initialise(hdgst, ddgst, hpda, maxr2t)

    def initialise(self, hdgst, ddgst, hpda, maxr2t):
        header = struct.pack("<BBBBI", ICREQ, 0, 128, 0, 128)
        digests = (1 if hdgst else 0) | (2 if ddgst else 0)
        self.send(header + struct.pack("<HBBI", 0, hpda, digests, maxr2t) + bytes(112))
        kind, _, header, _ = self.receive()
        if kind != ICRESP:
            raise Unusable(f"{NAMES[kind]} answers ICReq")
        pfv, cpda, agreed, self.maxh2cdata = struct.unpack_from("<HBBI", header, 8)
        equal("ICResp.PFV", pfv, 0)
        check(cpda <= 31, f"ICResp.CPDA is {cpda}, more than 31")
        check(agreed & ~digests == 0, f"ICResp.DGST {agreed:#x} was not asked for")
        check(self.maxh2cdata >= 4096, f"ICResp.MAXH2CDATA is {self.maxh2cdata}, less than 4096")
        check(self.maxh2cdata % 4 == 0, f"ICResp.MAXH2CDATA {self.maxh2cdata} is not in dwords")
        zero("ICResp bytes 16 to 127", header[16:])
        self.cpda, self.hdgst, self.ddgst = (cpda + 1) * 4, bool(agreed & 1), bool(agreed & 2)

    def send(self, data):
        self.socket.sendall(data)

    def take(self, length):
        while len(self.received) < length:
            got = self.socket.recv(1 << 18)
            if not got:
                raise Unusable("the target closed the connection")
            self.received += got
        data = bytes(self.received[:length])
        del self.received[:length]
        return data

    def receive(self):
        """The next PDU: type, flags, header, data."""
        common = self.take(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", common)
        if kind not in HLEN:
            raise Unusable(f"a controller may not send a PDU of type {kind:#x}")
        name = NAMES[kind]
        LEDGER.pdus[name] += 1
        equal(f"{name}.HLEN", hlen, HLEN[kind])
        check(flags & ~FLAGS[kind] == 0, f"{name}.FLAGS {flags:#x} has reserved bits")
        if not hlen <= plen <= 1 << 24 or hlen != HLEN[kind]:
            raise Unusable(f"{name} of HLEN {hlen} and PLEN {plen}")
        header = common + self.take(hlen - 8)
        left = plen - hlen
        digests = kind not in (ICRESP, C2H_TERM)
        equal(f"{name}.HDGSTF", bool(flags & HDGSTF), digests and self.hdgst)
        if digests and self.hdgst:
            equal(f"{name}.HDGST", le(self.take(4)), crc32c(header))
            LEDGER.digests += 1
            left -= 4
        if kind == C2H_DATA:
            data = self.payload(flags, header, pdo, plen - left, left)
        elif kind == C2H_TERM:
            equal(f"{name}.PDO", pdo, 0)
            data = self.take(left)
        else:
            equal(f"{name}.PDO", pdo, 0)
            equal(f"bytes of {name} behind its header", left, 0)
            data = self.take(left)
        return kind, flags, header, data

    def payload(self, flags, header, pdo, at, left):
        """Padding, data and digest of a C2HData PDU, of which `at` bytes have been read."""
        length = le(header[16:20])
        check(length > 0, "C2HData.DATAL is zero")
        check(pdo >= at, f"C2HData.PDO {pdo} is within the header of {at} bytes")
        check(pdo % self.alignment == 0, f"C2HData.PDO {pdo} is not a multiple of {self.alignment}")
        check(pdo - at < self.alignment, f"C2HData.PDO {pdo} leaves more padding than is needed")
        equal("C2HData.DDGSTF", bool(flags & DDGSTF), self.ddgst)
        digest = 4 if self.ddgst else 0
        equal("C2HData: PLEN - PDO", left - (pdo - at), length + digest)
        zero("C2HData padding", self.take(pdo - at))
        data = self.take(left - (pdo - at) - digest)
        if self.ddgst:
            equal("C2HData.DDGST", le(self.take(4)), crc32c(data))
            LEDGER.digests += 1
        return data

    def pdu(self, kind, flags, fields, data=b"", spoil=None):
        """The bytes of a PDU; `spoil` is "header" or "data", whose digest is wrong then."""
        hlen = 8 + len(fields)
        digest = 4 if self.hdgst else 0
        pdo = 0
        start = hlen + digest
        if data:
            start += -start % self.cpda
            pdo = start
        plen = start + len(data) + (4 if data and self.ddgst else 0)
        flags |= (HDGSTF if self.hdgst else 0) | (DDGSTF if data and self.ddgst else 0)
        whole = struct.pack("<BBBBI", kind, flags, hlen, pdo, plen) + fields
        if self.hdgst:
            whole += (crc32c(whole) ^ (spoil == "header")).to_bytes(4, "little")
        whole += bytes(start - len(whole)) + data
        if data and self.ddgst:
            whole += (crc32c(data) ^ (spoil == "data")).to_bytes(4, "little")
        return whole

    def is_closed(self):
        """Waits for the end of the connection, before which nothing may come."""
        try:
            more = self.socket.recv(1)
        except ConnectionResetError:
            return True
        return not more

    def close(self):
        self.socket.close()


class Command:
    """A command on its way: what it moves and what has been moved."""

    def __init__(self, opcode, read=0, write=b"", withhold=False):
        self.opcode, self.read, self.write, self.withhold = opcode, read, write, withhold
        self.cid = self.place = None
        self.data = bytearray()
        self.saw_last = False
        # The next byte that an R2T may ask for, and R2Ts that were not answered in full.
        self.asked, self.owed = 0, {}
        self.in_capsule = False
        self.done = False
        self.status, self.result, self.dnr = None, 0, False


class Queue:
    """A queue pair: a connection, the commands on it, and the submission queue's head."""

    # What Connect's response has to request.
    authreq = 0

    def __init__(self, connection, size):
        self.connection, self.size = connection, size
        self.submitted = self.head = self.last_sqhd = 0
        self.flow_control, self.connected = True, False
        self.pending = {}
        self.next_cid = random.randrange(1 << 16)
        self.in_capsule_max = 8192
        self.events = []

    # --- sending

    def submit(self, command, fields, in_capsule=None, sgl=None, psdt=0x40, spoil=None):
        """Sends a command with these dwords 0 (flags), 1 (NSID) and 10 to 15; returns it."""
        command.cid = self.next_cid
        self.next_cid = (self.next_cid + 1 + random.randrange(3)) & 0xFFFF
        while self.next_cid in self.pending:
            self.next_cid = (self.next_cid + 1) & 0xFFFF
        if in_capsule is None:
            in_capsule = len(command.write) <= self.in_capsule_max
        command.in_capsule = bool(command.write) and in_capsule
        length = command.read or len(command.write)
        if sgl is None:
            if command.in_capsule:
                sgl = struct.pack("<QI3xB", 0, length, 0x01)
            elif length:
                sgl = struct.pack("<QI3xB", 0, length, 0x5A)
            else:
                # Nothing to describe.
                sgl = bytes(16)
        sqe = struct.pack("<BBHI16x", command.opcode, psdt | fields.get("flags", 0), command.cid,
                          fields.get("nsid", 0)) + sgl
        if "raw" in fields:
            # A Fabrics command: byte 4, and bytes 40 to 63.
            sqe = sqe[:4] + bytes([fields["fctype"], 0, 0, 0]) + sqe[8:] + fields["raw"]
        else:
            sqe += b"".join(fields.get(dword, 0).to_bytes(4, "little") for dword in range(10, 16))
        assert len(sqe) == 64
        data = command.write if command.in_capsule else b""
        command.place = self.submitted
        self.submitted += 1
        self.pending[command.cid] = command
        LEDGER.commands += 1
        self.send(self.connection.pdu(CMD, 0, sqe, data, spoil))
        return command

    def send(self, data):
        """Sends it whole, or as several segments."""
        if random.random() < 0.1:
            cut = random.randrange(1, len(data))
            self.connection.send(data[:cut])
            time.sleep(0.001)
            data = data[cut:]
        self.connection.send(data)

    # --- receiving

    def step(self):
        kind, flags, header, data = self.connection.receive()
        if kind == RESP:
            self.on_response(header)
        elif kind == C2H_DATA:
            self.on_data(flags, header, data)
        elif kind == R2T:
            self.on_r2t(header)
        elif kind == C2H_TERM:
            fes, fei = struct.unpack_from("<HI", header, 8)
            raise Unusable(f"the target gave up: FES {fes:#x}, FEI {fei:#x}")
        else:
            raise Unusable(f"{NAMES[kind]} on a connection that is initialised")

    def find(self, name, cid):
        command = self.pending.get(cid)
        if command is None:
            raise Unusable(f"{name} for command {cid:#x}, which is not outstanding")
        return command

    def on_data(self, flags, header, data):
        cid, offset, length = le(header[8:10]), le(header[12:16]), le(header[16:20])
        zero("C2HData bytes 10 to 11", header[10:12])
        zero("C2HData bytes 20 to 23", header[20:24])
        command = self.find("C2HData", cid)
        check(not command.saw_last, "C2HData after LAST_PDU")
        # The specification has controllers send data in order.
        equal("C2HData.DATAO", offset, len(command.data))
        check(offset + length <= command.read,
              f"C2HData up to {offset + length} of {command.read} bytes")
        check(length % 4 == 0 or flags & LAST, "C2HData.DATAL is not in dwords")
        command.data += data
        LEDGER.bytes["to the host"] += len(data)
        command.saw_last = bool(flags & LAST)
        if command.saw_last:
            equal("bytes received with LAST_PDU", len(command.data), command.read)
        if flags & SUCCESS:
            check(flags & LAST, "SUCCESS without LAST_PDU")
            check(not self.flow_control, "SUCCESS although SQHD is in use")
            self.finish(command, OK, 0, False)

    def on_r2t(self, header):
        cid, ttag, offset, length = struct.unpack_from("<HHII", header, 8)
        zero("R2T bytes 20 to 23", header[20:24])
        command = self.find("R2T", cid)
        check(command.write and not command.in_capsule, "R2T for a command without data to send")
        equal("R2T.R2TO", offset, command.asked)
        check(length > 0, "R2T.R2TL is zero")
        check(offset + length <= len(command.write),
              f"R2T up to {offset + length} of {len(command.write)} bytes")
        check(length % 4 == 0, f"R2T.R2TL {length} is not in dwords")
        owed = [tag for other in self.pending.values() for tag in other.owed]
        check(ttag not in owed, f"R2T.TTAG {ttag:#x} is in use")
        command.asked += length
        command.owed[ttag] = (offset, length)
        LEDGER.most_r2ts = max(LEDGER.most_r2ts, len(command.owed))
        check(len(command.owed) <= self.connection.maxr2t + 1,
              f"{len(command.owed)} R2Ts outstanding, MAXR2T is {self.connection.maxr2t}")
        # Answers to R2Ts leave when nothing else has arrived: then several are outstanding.
        if not command.withhold and not self.arrived():
            self.answer_r2ts()

    def arrived(self):
        """Whether bytes of another PDU are here, or come at once."""
        if self.connection.received:
            return True
        self.connection.socket.settimeout(0.002)
        try:
            got = self.connection.socket.recv(1 << 18)
            self.connection.received += got
            return bool(got)
        except (BlockingIOError, TimeoutError):
            return False
        finally:
            self.connection.socket.settimeout(PATIENCE)

    def answer_r2ts(self):
        for command in list(self.pending.values()):
            if command.withhold:
                continue
            for ttag in list(command.owed):
                offset, length = command.owed.pop(ttag)
                self.send_data(command, ttag, offset, length)

    def send_data(self, command, ttag, offset, length):
        end = offset + length
        while offset < end:
            # Pieces of any length in dwords, up to what the target takes.
            piece = min(end - offset, self.connection.maxh2cdata)
            if random.random() < 0.3:
                piece = min(piece, random.randrange(1, 4096) * 4)
            flags = LAST if offset + piece == end else 0
            fields = struct.pack("<HHII4x", command.cid, ttag, offset, piece)
            data = command.write[offset:offset + piece]
            self.send(self.connection.pdu(H2C_DATA, flags, fields, data))
            LEDGER.bytes["to the target"] += piece
            offset += piece

    def on_response(self, header):
        result, head, sqid, cid, status = struct.unpack_from("<QHHHH", header, 8)
        equal("CapsuleResp.SQID", sqid, 0)
        equal("CapsuleResp: bit 0 of the status", status & 1, 0)
        equal("CapsuleResp: CRD", status >> 12 & 3, 0)
        equal("CapsuleResp: More", status >> 14 & 1, 0)
        command = self.find("CapsuleResp", cid)
        self.last_sqhd = head
        if not self.connected:
            pass
        elif self.flow_control:
            check(head < self.size, f"SQHD is {head} in a queue of {self.size}")
            advance = (head - self.head) % self.size
            check(self.head + advance <= self.submitted, f"SQHD {head} is beyond the tail")
            self.head += advance
            check(command.place < self.head, f"SQHD {head} is before the command it answers")
        else:
            equal("SQHD without flow control", head, 0)
        code = (status >> 9 & 7, status >> 1 & 0xFF)
        if code == OK:
            equal("bytes received at the end", len(command.data), command.read)
            check(not command.read or command.saw_last, "the last C2HData has no LAST_PDU")
            if command.write and not command.in_capsule:
                equal("bytes asked for by R2Ts", command.asked, len(command.write))
            check(not command.owed, "success before all R2Ts were answered")
            equal("DNR of a success", status >> 15, 0)
        self.finish(command, code, result, bool(status >> 15))

    def finish(self, command, status, result, dnr):
        del self.pending[command.cid]
        command.done, command.status, command.result, command.dnr = True, status, result, dnr

    def wait(self, command):
        while not command.done:
            if not self.arrived():
                self.answer_r2ts()
            self.step()
        return command

    def run(self, command, fields, wanted=OK, **how):
        """Submits a command and waits for it; it has to end with this status, or one of these."""
        self.wait(self.submit(command, fields, **how))
        wanted = wanted if isinstance(wanted, list) else [wanted]
        check(command.status in wanted,
              f"opcode {command.opcode:#x} {fields}: status {command.status}, not {wanted}")
        if self.connected and self.flow_control and not self.pending:
            equal("commands that the target has taken", self.head, self.submitted)
        return command

    # --- Fabrics commands

    def connect(self, qid, nqn, cntlid=0xFFFF, host_nqn=HOST_NQN, kato=0, cattr=0, size=None,
                recfmt=0, wanted=OK):
        size = self.size if size is None else size
        raw = struct.pack("<HHHBBI12x", recfmt, qid, size - 1 & 0xFFFF, cattr, 0, kato)
        data = HOST_ID + struct.pack("<H238x", cntlid)
        data += nqn.encode().ljust(256, b"\0") + host_nqn.encode().ljust(256, b"\0") + bytes(256)
        command = Command(0x7F, write=data)
        self.submit(command, {"fctype": 1, "raw": raw}, in_capsule=True)
        self.wait(command)
        check(command.status in (wanted if isinstance(wanted, list) else [wanted]),
              f"Connect to {nqn} as {host_nqn!r}, queue {qid}: {command.status}, not {wanted}")
        if command.status == OK:
            zero("Connect: bits 32 to 63 of the result", (command.result >> 32).to_bytes(4, "little"))
            equal("Connect: AUTHREQ", command.result >> 16 & 0xFFFF, self.authreq)
            # FFFFh agrees to do without flow control.
            self.flow_control = self.last_sqhd != 0xFFFF
            check(self.flow_control or cattr & 4, "flow control is off, which was not asked for")
            equal("SQHD of Connect", self.last_sqhd, 1 % self.size if self.flow_control else 0xFFFF)
            self.head, self.connected = 1, True
        return command

    def property_get(self, offset, size, wanted=OK):
        raw = struct.pack("<B3xI16x", 1 if size == 8 else 0, offset)
        value = self.run(Command(0x7F), {"fctype": 4, "raw": raw}, wanted).result
        check(size == 8 or value >> 32 == 0, f"property {offset:#x} is larger than 4 bytes")
        return value

    def property_set(self, offset, value, wanted=OK):
        raw = struct.pack("<B3xIQ8x", 0, offset, value)
        return self.run(Command(0x7F), {"fctype": 0, "raw": raw}, wanted)

    def disconnect(self):
        raw = struct.pack("<H22x", 0)
        self.run(Command(0x7F), {"fctype": 8, "raw": raw})


class Controller:
    """An association: the admin queue, enabled and identified."""

    def __init__(self, place, nqn, size=32, kato=None, host_nqn=HOST_NQN, queue=Queue, **options):
        self.place, self.nqn, self.host_nqn, self.options = place, nqn, host_nqn, options
        self.queue = queue
        if kato is None:
            kato = 0 if nqn == DISCOVERY_NQN else 120_000
        self.admin = queue(Connection(place, **options), size)
        self.cntlid = self.admin.connect(0, nqn, kato=kato, host_nqn=host_nqn).result & 0xFFFF
        check(self.cntlid < 0xFFF0, f"CNTLID is {self.cntlid:#x}")
        self.version = self.admin.property_get(0x08, 4)
        self.enable()

    def enable(self):
        cap = self.admin.property_get(0x00, 8)
        check(cap >> 16 & 1, "CAP.CQR is zero")
        check(cap >> 37 & 1, "CAP.CSS does not name the NVM command set")
        equal("CAP.MPSMIN", cap >> 48 & 15, 0)
        equal("CAP.DSTRD", cap >> 32 & 15, 0)
        self.queue_entries = (cap & 0xFFFF) + 1
        check(self.queue_entries >= 2, "CAP.MQES is zero")
        zero("CAP bits 19 to 23", [cap >> 19 & 31])
        patience = (cap >> 24 & 0xFF) / 2
        equal("CSTS before it is enabled", self.admin.property_get(0x1C, 4), 0)
        self.admin.property_set(0x14, 0x00460001)
        began = time.monotonic()
        while not (status := self.admin.property_get(0x1C, 4)) & 1:
            check(status & 2 == 0, "CSTS.CFS is set")
            if time.monotonic() - began > max(patience, PATIENCE):
                raise Unusable("the controller does not become ready")
        equal("CSTS", status, 1)
        equal("CC", self.admin.property_get(0x14, 4), 0x00460001)

    def io_queue(self, qid, size=32, flow_control=True, wanted=OK, **options):
        options = {**self.options, **options}
        queue = self.queue(Connection(self.place, **options), size)
        queue.connect(qid, self.nqn, self.cntlid, self.host_nqn, cattr=0 if flow_control else 4,
                      wanted=wanted)
        queue.in_capsule_max = self.in_capsule_max
        return queue

    def identify(self, cns, nsid=0, csi=0, cntid=0, wanted=OK):
        fields = {"nsid": nsid, 10: cns | cntid << 16, 11: csi << 24}
        return bytes(self.admin.run(Command(0x06, read=4096), fields, wanted).data)

    def log_page(self, lid, length, offset=0, nsid=0xFFFFFFFF, rae=0, csi=0, wanted=OK):
        dwords = length // 4 - 1
        fields = {"nsid": nsid, 10: lid | rae << 15 | (dwords & 0xFFFF) << 16, 11: dwords >> 16,
                  12: offset & 0xFFFFFFFF, 13: offset >> 32, 14: csi << 24}
        return bytes(self.admin.run(Command(0x02, read=length), fields, wanted).data)

    def identify_controller(self, kind):
        data = self.identify(1)
        for name, begin, end in [("SN", 4, 24), ("MN", 24, 64), ("FR", 64, 72)]:
            field = data[begin:end]
            printable = all(0x20 <= byte < 0x7F for byte in field)
            check(printable and field.strip(), f"Identify: {name} is {field!r}")
        equal("Identify: CNTLID", le(data[78:80]), self.cntlid)
        equal("Identify: VER", le(data[80:84]), self.version)
        equal("Identify: CNTRLTYPE", data[111], kind)
        equal("Identify: SUBNQN", text_of(data[768:1024]), self.nqn)
        equal("Identify: FCATT", data[1802] & 0xFE, 0)
        equal("Identify: ICDOFF", le(data[1800:1802]), 0)
        check(le(data[1792:1796]) >= 4, "Identify: IOCCSZ is less than a command")
        equal("Identify: IORCSZ", le(data[1796:1800]), 1)
        sgls = le(data[536:540])
        check(sgls & 3 in (1, 2), f"Identify: SGLS {sgls:#x} says that there are none")
        check(sgls >> 20 & 1, f"Identify: SGLS {sgls:#x} has no transport SGL")
        check(le(data[514:516]) > 0, "Identify: MAXCMD is zero")
        for begin, end in [(134, 240), (384, 512), (564, 768), (1024, 1792), (1806, 2048)]:
            zero(f"Identify Controller bytes {begin} to {end - 1}", data[begin:end])
        self.mdts = (1 << data[77]) * 4096 if data[77] else 1 << 20
        self.in_capsule_max = le(data[1792:1796]) * 16 - 64
        self.events_max = data[259] + 1
        self.cache = data[525] & 1
        self.fuses, self.acwu = le(data[522:524]), le(data[532:534])
        self.retry_delay = le(data[128:130])
        if kind == 1:
            check(le(data[320:322]) > 0, "Identify: KAS is zero")
            equal("Identify: SQES", data[512], 0x66)
            equal("Identify: CQES", data[513], 0x44)
        return data

    def shut_down(self):
        self.admin.property_set(0x14, 0x00464001)
        began = time.monotonic()
        while self.admin.property_get(0x1C, 4) >> 2 & 3 != 2:
            if time.monotonic() - began > PATIENCE:
                raise Unusable("the shutdown does not end")
            time.sleep(0.01)
        self.admin.connection.close()


class Namespace:
    """Blocks as they have to be."""

    def __init__(self, controller, nsid):
        self.nsid = nsid
        data = controller.identify(0, nsid)
        self.blocks, capacity, used = struct.unpack_from("<QQQ", data)
        check(self.blocks > 0, "Identify Namespace: NSZE is zero")
        check(capacity <= self.blocks, "Identify Namespace: NCAP exceeds NSZE")
        check(used <= capacity, "Identify Namespace: NUSE exceeds NCAP")
        check(data[26] & 15 <= data[25], "Identify Namespace: FLBAS is not a format")
        metadata, shift, _ = struct.unpack_from("<HBB", data, 128 + 4 * (data[26] & 15))
        equal("Identify Namespace: MS", metadata, 0)
        check(shift >= 9, f"Identify Namespace: LBADS is {shift}")
        zero("Identify Namespace bytes 384 on", data[384:])
        self.block = 1 << shift
        self.content = {}

    def fields(self, lba, count, **more):
        return {"nsid": self.nsid, 10: lba & 0xFFFFFFFF, 11: lba >> 32, 12: count - 1, **more}

    def note(self, lba, data):
        for index in range(len(data) // self.block):
            self.content[lba + index] = data[index * self.block:(index + 1) * self.block]

    def expected(self, lba, count):
        return b"".join(self.content[lba + index] for index in range(count))

    def write(self, queue, lba, data, fua=False, wanted=OK, **how):
        fields = self.fields(lba, len(data) // self.block)
        fields[12] |= (1 << 30) if fua else 0
        done = queue.run(Command(0x01, write=data), fields, wanted, **how)
        if done.status == OK:
            self.note(lba, data)

    def compare_content(self, queue, lba, count):
        done = queue.run(Command(0x02, read=count * self.block), self.fields(lba, count))
        check(done.data == self.expected(lba, count), f"read of {count} blocks at {lba} differs")


# --- scenarios

def identify_everything(controller, nsid):
    controller.identify_controller(1)
    active = controller.identify(2)
    ids = [le(active[index:index + 4]) for index in range(0, 4096, 4)]
    count = ids.index(0)
    check(nsid in ids, f"{nsid} is not among the active namespaces")
    check(ids[:count] == sorted(set(ids[:count])), "active namespaces are not in order")
    zero("the list of active namespaces behind its end", ids[count:])
    equal("active namespaces beyond the last", controller.identify(2, ids[count - 1]), bytes(4096))
    names = controller.identify(3, nsid)
    at, kinds = 0, []
    while names[at]:
        kind, length = names[at], names[at + 1]
        zero("a namespace descriptor's reserved bytes", names[at + 2:at + 4])
        equal(f"length of descriptor {kind}", length, {1: 8, 2: 16, 3: 16, 4: 1}.get(kind))
        check(kind == 4 or any(names[at + 4:at + 4 + length]), f"descriptor {kind} is zero")
        kinds.append(kind)
        at += 4 + length
    zero("namespace descriptors behind their end", names[at:])
    check(set(kinds) & {1, 2, 3}, "a namespace without an identifier")
    check(len(kinds) == len(set(kinds)), "a namespace with two identifiers of a kind")
    controller.identify(0xFE, wanted=INVALID_FIELD)
    controller.identify(0, 0xFFFFFF00, wanted=INVALID_NAMESPACE)
    inactive = controller.identify(0, 1000)
    zero("Identify of an inactive namespace", inactive)


def log_pages(controller, dissected):
    smart = controller.log_page(2, 512)
    check(le(smart[1:3]) == 0 or 200 < le(smart[1:3]) < 400, "a temperature in another unit")
    zero("SMART bytes 232 to 511", smart[232:])
    firmware = controller.log_page(3, 512)
    check(firmware[0] & 7 in range(1, 8), "no active firmware slot")
    zero("firmware log bytes 64 to 511", firmware[64:])
    effects = controller.log_page(5, 4096)
    for name, index in [("Get Log Page", 0x02), ("Identify", 0x06), ("Keep Alive", 0x18)]:
        check(effects[4 * index] & 1, f"{name} is not in the effects log")
    for name, index in [("Flush", 0), ("Write", 1), ("Read", 2)]:
        check(effects[1024 + 4 * index] & 1, f"{name} is not in the effects log")
    zero("effects log bytes 2048 on", effects[2048:])
    if not dissected:
        errors = controller.log_page(1, 64)
        zero("error log entry bytes 42 to 63", errors[42:])
        # In pieces the same as whole.
        parts = b"".join(controller.log_page(5, 1024, offset) for offset in range(0, 4096, 1024))
        equal("the effects log in pieces", parts, effects)
    controller.log_page(0xBE, 512, wanted=[INVALID_LOG_PAGE, INVALID_FIELD])


def host_behavior(controller, admin):
    """Retry delays are enabled where there are any, and disabled again."""
    def current():
        return bytes(admin.run(Command(0x0A, read=512), {10: 0x16}).data)

    none, delays = bytes(512), b"\1" + bytes(511)
    equal("CRDT1", controller.retry_delay, 1)
    equal("Host Behavior Support after a reset", current(), none)
    for behavior in (delays, none):
        admin.run(Command(0x09, write=behavior), {10: 0x16})
        equal("Host Behavior Support", current(), behavior)
    admin.run(Command(0x09, write=b"\2" + bytes(511)), {10: 0x16}, INVALID_FIELD)
    equal("Host Behavior Support after a refusal", current(), none)


def features(controller):
    admin = controller.admin
    queues = admin.run(Command(0x09), {10: 7, 11: 3 | 3 << 16}).result
    check(queues & 0xFFFF >= 1 and queues >> 16 & 0xFFFF >= 1, "fewer than two I/O queues")
    equal("Number of Queues", admin.run(Command(0x0A), {10: 7}).result, queues)
    # Only where there is a volatile write cache.
    admin.run(Command(0x0A), {10: 0x06}, OK if controller.cache else INVALID_FIELD)
    admin.run(Command(0x09), {10: 0x0B, 11: 1 << 8})
    equal("enabled events", admin.run(Command(0x0A), {10: 0x0B}).result, 1 << 8)
    host_behavior(controller, admin)
    admin.run(Command(0x0A), {10: 0xBE}, INVALID_FIELD)
    admin.run(Command(0x09), {10: 0xBE}, INVALID_FIELD)
    admin.run(Command(0xBD), {}, INVALID_OPCODE)
    for _ in range(3):
        admin.run(Command(0x18), {})


def events_and_aborts(controller, queue, namespace, notice):
    admin = controller.admin
    requests = [admin.submit(Command(0x0C), {}) for _ in range(controller.events_max)]
    admin.run(Command(0x0C), {}, AER_LIMIT)
    for request in requests[1:]:
        aborted = admin.run(Command(0x08), {10: request.cid << 16})
        equal("Abort of an Asynchronous Event Request", aborted.result, 0)
        equal("what was aborted", admin.wait(request).status, ABORTED)
    nobody = next(cid for cid in range(1 << 16) if cid not in admin.pending and cid != admin.next_cid)
    equal("Abort of nothing", admin.run(Command(0x08), {10: nobody << 16}).result, 1)
    # A write whose data the host withholds can be aborted; its queue goes on.
    data = random.randbytes(64 << 10)
    count = len(data) // namespace.block
    before = Command(0x02, read=len(data))
    queue.run(before, namespace.fields(0, count))
    withheld = queue.submit(Command(0x01, write=data, withhold=True), namespace.fields(0, count),
                            in_capsule=False)
    while not withheld.owed:
        queue.step()
    aborted = admin.run(Command(0x08), {10: queue.qid | withheld.cid << 16})
    if aborted.result == 0:
        withheld.owed.clear()
        equal("the aborted write", queue.wait(withheld).status, ABORTED)
        after = queue.run(Command(0x02, read=len(data)), namespace.fields(0, count))
        check(after.data == before.data, "an aborted write without data changed blocks")
    else:
        withheld.withhold = False
        equal("a write that could not be aborted", queue.wait(withheld).status, OK)
        namespace.note(0, data)
    if notice:
        print("waiting for a notice", flush=True)
        event = admin.wait(requests[0])
        equal("type of the event", event.result & 7, 2)
        equal("the event's information", event.result >> 8 & 0xFF, 0)
        equal("the event's log page", event.result >> 16 & 0xFF, 4)
        equal("the event's reserved bits", event.result >> 24, 0)
        changed = controller.log_page(4, 4096)
        ids = [le(changed[index:index + 4]) for index in range(0, 4096, 4)]
        check(ids[0] != 0, "no namespace changed")
        zero("the list of changed namespaces behind its end", ids[ids.index(0):])
        equal("changed namespaces once read", controller.log_page(4, 4096), bytes(4096))


def data_paths(queue, namespace, most):
    """Every way in and out, in sizes from a block to the largest transfer."""
    block = namespace.block
    sizes = [block, 4096, 8192, 16 << 10, (16 << 10) + block, 64 << 10, 128 << 10, most]
    lba = 64
    for size in sorted({size for size in sizes if size % block == 0 and size <= most}):
        data = random.randbytes(size)
        namespace.write(queue, lba, data, in_capsule=size <= queue.in_capsule_max)
        namespace.compare_content(queue, lba, size // block)
        if size <= queue.in_capsule_max:
            # The same outside of the capsule.
            namespace.write(queue, lba, random.randbytes(size), in_capsule=False, fua=True)
            namespace.compare_content(queue, lba, size // block)
        lba += size // block
    queue.run(Command(0x00), {"nsid": namespace.nsid})
    # The very last block.
    namespace.write(queue, namespace.blocks - 1, random.randbytes(block))
    namespace.compare_content(queue, namespace.blocks - 1, 1)


def command_set(queue, namespace):
    """Compare, Verify, Write Zeroes, Dataset Management, between blocks that stay as they are."""
    block, start = namespace.block, 4096
    data = random.randbytes(32 * block)
    namespace.write(queue, start, data)
    queue.run(Command(0x05, write=data), namespace.fields(start, 32))
    other = bytearray(data)
    other[-1] ^= 1
    queue.run(Command(0x05, write=bytes(other)), namespace.fields(start, 32), COMPARE_FAILURE)
    queue.run(Command(0x0C), namespace.fields(start, 32), [OK, INVALID_OPCODE])
    queue.run(Command(0x08), namespace.fields(start + 8, 8))
    namespace.note(start + 8, bytes(8 * block))
    namespace.compare_content(queue, start, 32)
    ranges = struct.pack("<IIQIIQ", 0, 4, start + 20, 0, 2, start + 28)
    queue.run(Command(0x09, write=ranges), {"nsid": namespace.nsid, 10: 1, 11: 4})
    for lba, count in [(start, 20), (start + 24, 4), (start + 30, 2)]:
        namespace.compare_content(queue, lba, count)
    # A deallocated block reads the same each time until it is written.
    first = queue.run(Command(0x02, read=block), namespace.fields(start + 20, 1)).data
    again = queue.run(Command(0x02, read=block), namespace.fields(start + 20, 1)).data
    check(first == again, "a deallocated block reads differently")
    check(bytes(first) in (bytes(block), data[20 * block:21 * block], b"\xff" * block),
          "a deallocated block holds something else")


def fused_commands(queue, namespace, acwu):
    """Compare and Write as one: a block changes only if it is as expected."""
    block, lba = namespace.block, 4200
    old, new = random.randbytes(block), random.randbytes(block)

    def half(first, data, count=1, at=lba):
        fields = namespace.fields(at, count)
        fields["flags"] = 1 if first else 2
        command = Command(0x05 if first else 0x01, write=data)
        return queue.submit(command, fields, in_capsule=random.choice([None, False]))

    def ended(what, *halves):
        for command, wanted in halves:
            equal(f"Compare and Write, {what}", queue.wait(command).status, wanted)

    namespace.write(queue, lba, old)
    for _ in range(8):
        ended("of the content", (half(True, old), OK), (half(False, new), OK))
        namespace.note(lba, new)
        namespace.compare_content(queue, lba, 1)
        ended("of another content", (half(True, old), COMPARE_FAILURE),
              (half(False, old), FAILED_FUSED))
        namespace.compare_content(queue, lba, 1)
        old, new = new, old
    # Pairs of several blocks, all outstanding at once.
    namespace.write(queue, lba, 4 * old)
    pairs = [(half(first, old if first else new, at=lba + at), OK)
             for at in range(4) for first in (True, False)]
    ended("of several blocks", *pairs)
    namespace.note(lba, 4 * new)
    namespace.compare_content(queue, lba, 4)
    old, new = new, old
    ended("of other blocks", (half(True, old), INVALID_FIELD),
          (half(False, new, at=lba + 1), INVALID_FIELD))
    ended("beyond the end", (half(True, old, at=namespace.blocks), LBA_OUT_OF_RANGE),
          (half(False, new, at=namespace.blocks), FAILED_FUSED))
    count = acwu + 2
    ended("of more than ACWU", (half(True, count * old, count), ATOMIC_UNIT_EXCEEDED),
          (half(False, count * new, count), FAILED_FUSED))
    ended("without a first half", (half(False, new), MISSING_FUSED))
    first = half(True, old)
    namespace.compare_content(queue, lba, 1)
    ended("without a second half", (first, MISSING_FUSED), (half(False, new), MISSING_FUSED))
    namespace.compare_content(queue, lba, 1)


def wrong_commands(queue, namespace, most):
    """What is wrong with a command is told by its status, and the queue goes on."""
    block, nsid = namespace.block, namespace.nsid

    def read(lba, count, wanted, length=None, **how):
        length = count * block if length is None else length
        queue.run(Command(0x02, read=length), namespace.fields(lba, count), wanted, **how)

    queue.run(Command(0x7D), {"nsid": nsid}, INVALID_OPCODE)
    read(namespace.blocks, 1, LBA_OUT_OF_RANGE)
    read(namespace.blocks - 1, 2, LBA_OUT_OF_RANGE)
    read((1 << 64) - 1, 2, LBA_OUT_OF_RANGE)
    read(0, most // block + 1, INVALID_FIELD)
    read(0, 8, SGL_LENGTH_INVALID, length=4 * block)
    read(0, 1, SGL_TYPE_INVALID, sgl=struct.pack("<QI3xB", 0, block, 0x40))
    queue.run(Command(0x02, read=block), {"nsid": 0xFFFFFF00, 10: 0, 12: 0}, INVALID_NAMESPACE)
    queue.run(Command(0x02, read=block), {"nsid": 0, 10: 0, 12: 0}, INVALID_NAMESPACE)
    fused = namespace.fields(0, 1)
    fused["flags"] = 1
    queue.run(Command(0x02, read=block), fused, INVALID_FIELD)
    beyond = struct.pack("<QI3xB", 1 << 20, block, 0x01)
    queue.run(Command(0x01, write=random.randbytes(block)), namespace.fields(4096, 1),
              [SGL_OFFSET_INVALID, SGL_LENGTH_INVALID, INVALID_FIELD], in_capsule=True, sgl=beyond)
    queue.run(Command(0x08), namespace.fields(namespace.blocks, 1), LBA_OUT_OF_RANGE)
    queue.run(Command(0x00), {"nsid": 0xFFFFFF00}, INVALID_NAMESPACE)
    # Unharmed.
    namespace.compare_content(queue, 4096, 8)


def load(queues, namespace, rounds, most, depth=16):
    """Commands of all kinds, several at a time on several queues, each to blocks of its own."""
    block = namespace.block
    area = max(most // block, 64)
    slots = [{"queue": queue, "lba": 8192 + (index * depth + slot) * area, "running": None}
             for index, queue in enumerate(queues) for slot in range(depth)]
    slots = [slot for slot in slots if slot["lba"] + area < namespace.blocks]

    def begin(slot):
        kind = random.choice("wwwrrrzfc") if slot["lba"] in namespace.content else "w"
        count = random.choice([1, 2, 8, 16, 64, random.randrange(1, area)])
        count = slot.get("count", count) if kind in "rc" else min(count, most // block)
        fields = namespace.fields(slot["lba"], count)
        command = None
        if kind == "w":
            command = Command(0x01, write=random.randbytes(count * block))
            slot["count"] = count
        elif kind == "r":
            command = Command(0x02, read=count * block)
        elif kind == "c":
            command = Command(0x05, write=namespace.expected(slot["lba"], count))
        elif kind == "z":
            command = Command(0x08)
            slot["count"] = count
        else:
            command, fields = Command(0x00), {"nsid": namespace.nsid}
        slot["running"] = (kind, count, slot["queue"].submit(command, fields))

    def end(slot):
        kind, count, command = slot["running"]
        slot["running"] = None
        equal(f"status of {kind}", command.status, OK)
        if kind == "w":
            namespace.note(slot["lba"], command.write)
        elif kind == "z":
            namespace.note(slot["lba"], bytes(count * block))
        elif kind == "r":
            wanted = namespace.expected(slot["lba"], count)
            check(command.data == wanted, f"{count} blocks at {slot['lba']} differ")

    for _ in range(rounds):
        for slot in slots:
            if slot["running"] is None:
                begin(slot)
        for queue in queues:
            while queue.pending and (queue.arrived() or len(queue.pending) > depth // 2):
                if not queue.connection.received:
                    queue.answer_r2ts()
                queue.step()
        for slot in slots:
            if slot["running"] and slot["running"][2].done:
                end(slot)
    for slot in slots:
        if slot["running"]:
            slot["queue"].wait(slot["running"][2])
            end(slot)


def session(place, nqn, nsid, notice=False, rounds=20, flow_control=True, dissected=False,
            **options):
    """One association from its beginning to its shutdown."""
    controller = Controller(place, nqn, **options)
    identify_everything(controller, nsid)
    namespace = Namespace(controller, nsid)
    log_pages(controller, dissected)
    features(controller)
    queues = [controller.io_queue(qid, flow_control=flow_control) for qid in (1, 2)]
    for qid, queue in enumerate(queues, 1):
        queue.qid = qid
    most = min(controller.mdts, 1 << 20)
    data_paths(queues[0], namespace, most)
    command_set(queues[1], namespace)
    if controller.fuses & 1:
        fused_commands(queues[1], namespace, controller.acwu)
    wrong_commands(queues[1], namespace, controller.mdts)
    events_and_aborts(controller, queues[0], namespace, notice)
    load(queues, namespace, rounds, 64 << 10)
    if options.get("ddgst"):
        spoiled_digest(queues[0], namespace)
    for queue in queues:
        equal("commands left", len(queue.pending), 0)
    queues[0].disconnect()
    controller.shut_down()
    for queue in queues:
        queue.connection.close()


def spoiled_digest(queue, namespace):
    """Data that was damaged on its way changes nothing, and the connection goes on."""
    before = queue.run(Command(0x02, read=namespace.block), namespace.fields(64, 1)).data
    queue.run(Command(0x01, write=random.randbytes(namespace.block)), namespace.fields(64, 1),
              TRANSIENT_TRANSPORT, in_capsule=True, spoil="data")
    after = queue.run(Command(0x02, read=namespace.block), namespace.fields(64, 1)).data
    check(before == after, "damaged data was written")


def discovery(place, nqn, **options):
    controller = Controller(place, DISCOVERY_NQN, **options)
    controller.identify_controller(2)
    head = controller.log_page(0x70, 1024, nsid=0)
    generation, records, recfmt = struct.unpack_from("<QQH", head)
    equal("discovery log: RECFMT", recfmt, 0)
    zero("discovery log bytes 18 to 1023", head[18:])
    check(records >= 1, "an empty discovery log")
    whole = controller.log_page(0x70, 1024 * (1 + records), nsid=0)
    equal("the discovery log's header", whole[:1024], head)
    found = []
    for index in range(records):
        entry = whole[1024 * (index + 1):1024 * (index + 2)]
        part = controller.log_page(0x70, 1024, 1024 * (index + 1), nsid=0)
        equal("a discovery log entry by itself", part, entry)
        subtype, port = entry[2], text_of(entry[32:64])
        equal("entry: TRTYPE", entry[0], 3)
        check(entry[1] in (1, 2), f"entry: ADRFAM is {entry[1]}")
        check(subtype in (1, 2, 3), f"entry: SUBTYPE is {subtype}")
        check(le(entry[6:8]) in (0xFFFF, 0xFFFE), "entry: CNTLID is not dynamic")
        check(le(entry[8:10]) >= 32, "entry: ASQSZ is less than 32")
        check(port.isdigit(), f"entry: TRSVCID is {port!r}")
        zero("entry bytes 12 to 31", entry[12:32])
        zero("entry bytes 64 to 255", entry[64:256])
        zero("entry: TSAS", entry[768:])
        for name, begin, end in [("SUBNQN", 256, 512), ("TRADDR", 512, 768), ("TRSVCID", 32, 64)]:
            zero(f"entry: {name} behind its end", entry[begin:end].lstrip(b"\0").split(b"\0", 1)[-1]
                 if b"\0" in entry[begin:end] else b"")
        found.append((text_of(entry[256:512]), int(port)))
    check((nqn, place[1]) in found, f"{nqn} is not in the discovery log: {found}")
    check(struct.unpack_from("<Q", controller.log_page(0x70, 1024, nsid=0))[0] == generation,
          "GENCTR changed although nothing did")
    # No command of I/O controllers.
    controller.admin.run(Command(0x06, read=4096), {"nsid": 1, 10: 0}, [INVALID_FIELD, INVALID_OPCODE,
                                                                        INVALID_NAMESPACE])
    controller.shut_down()


def refused_connects(place, nqn):
    """What a Connect may not say, and which byte the target says is at fault."""

    def refused(wanted, where=None, controller=None, **how):
        queue = Queue(Connection(place), 32)
        done = queue.connect(how.pop("qid", 0), how.pop("nqn", nqn), wanted=wanted, **how)
        if where is not None and done.status == wanted:
            equal("Connect: IATTR and IPO", (done.result >> 16 & 0xFF, done.result & 0xFFFF), where)
        queue.connection.close()

    refused(CONNECT_INVALID, (1, 256), nqn="nqn.2026-11.org.example:nowhere")
    refused(CONNECT_INVALID, (0, 44), size=1)
    refused(CONNECT_FORMAT, recfmt=7)
    refused(CONNECT_INVALID, (1, 16), qid=1, cntlid=0xFFEE)
    controller = Controller(place, nqn)
    controller.identify_controller(1)
    first = controller.io_queue(1)
    # A queue that exists: the clauses name no status for it, and targets differ.
    controller.io_queue(1, wanted=[SEQUENCE_ERROR, CONNECT_INVALID]).connection.close()
    # Another host may not use the controller.
    queue = Queue(Connection(place), 32)
    queue.connect(2, nqn, controller.cntlid, HOST_NQN[:-1] + "2", wanted=CONNECT_INVALID)
    queue.connection.close()
    # Before Connect there is no queue.
    queue = Queue(Connection(place), 32)
    queue.run(Command(0x18), {}, SEQUENCE_ERROR)
    queue.connection.close()
    controller.shut_down()
    first.connection.close()


def reset(place, nqn):
    """Disabled, a controller forgets its I/O queues, and can be enabled again."""
    controller = Controller(place, nqn)
    controller.identify_controller(1)
    queue = controller.io_queue(1)
    controller.admin.property_set(0x14, 0x00460000)
    began = time.monotonic()
    while controller.admin.property_get(0x1C, 4) & 1:
        if time.monotonic() - began > PATIENCE:
            raise Unusable("the controller stays ready")
        time.sleep(0.01)
    check(queue.connection.is_closed(), "an I/O queue outlives the reset of its controller")
    controller.enable()
    again = controller.io_queue(1)
    again.run(Command(0x00), {"nsid": 0xFFFFFFFF}, [OK, INVALID_NAMESPACE])
    controller.shut_down()
    again.connection.close()


def keep_alive(place, nqn):
    """A host that falls silent loses its controller, and one that does not keeps it."""
    kato = 1000
    silent = Controller(place, nqn, kato=kato)
    lively = Controller(place, nqn, kato=kato)
    for _ in range(8):
        time.sleep(kato / 4000)
        lively.admin.run(Command(0x18), {})
    check(silent.admin.connection.is_closed(), "a silent host keeps its controller")
    for _ in range(4):
        time.sleep(kato / 4000)
        lively.admin.run(Command(0x18), {})
    lively.shut_down()


def header(kind, hlen, plen, pdo=0, flags=0):
    return struct.pack("<BBBBI", kind, flags, hlen, pdo, plen)


def termination(place, nqn):
    """What breaks the transport's rules ends the connection, with the reason."""
    icreq = header(ICREQ, 128, 128) + bytes(120)

    def terminated(what, sent, fes, fei=None, initialise=True, **options):
        connection = Connection(place, initialise=initialise, **options)
        connection.send(sent(connection) if callable(sent) else sent)
        is_terminated(what, connection, fes, fei, None if callable(sent) else sent)

    def is_terminated(what, connection, fes, fei, sent=None):
        LEDGER.scenario = f"termination, {what}"
        kind, _, head, data = connection.receive()
        equal("the PDU that ends it", NAMES[kind], NAMES[C2H_TERM])
        if kind == C2H_TERM:
            is_fes, is_fei = struct.unpack_from("<HI", head, 8)
            equal("C2HTermReq.FES", is_fes, fes)
            if fei is not None:
                equal("C2HTermReq.FEI", is_fei, fei)
            zero("C2HTermReq bytes 14 to 23", head[14:])
            check(8 <= len(data) <= 128, f"C2HTermReq with {len(data)} bytes of the header")
            check(not sent or sent.startswith(data), "C2HTermReq holds another header")
        connection.socket.shutdown(socket.SHUT_WR)
        check(connection.is_closed(), "something follows C2HTermReq")
        connection.close()

    zeroes = bytes(64)
    terminated("no ICReq", header(CMD, 72, 72) + zeroes, 2, initialise=False)
    terminated("another PFV", header(ICREQ, 128, 128) + b"\x01" + bytes(119), 6, 8, initialise=False)
    terminated("ICReq of another length", header(ICREQ, 127, 128) + bytes(120), 1, 2,
               initialise=False)
    terminated("ICReq twice", icreq, 2)
    terminated("an unknown type", header(0x0A, 24, 24) + bytes(16), 1, 0)
    terminated("a type of controllers", header(RESP, 24, 24) + bytes(16), 1, 0)
    terminated("HLEN", header(CMD, 71, 72) + zeroes, 1, 2)
    terminated("PLEN", header(CMD, 72, 71) + zeroes, 1, 4)
    terminated("a PLEN of 4 GiB", header(CMD, 72, 0xFFFFFFFF, 72) + zeroes, 1, 4)
    terminated("PDO", header(CMD, 72, 72 + 512, 74) + zeroes + bytes(512), 1, 3)

    def spoiled(connection):
        whole = connection.pdu(CMD, 0, zeroes, spoil="header")
        return whole

    terminated("header digest", spoiled, 3, hdgst=True)

    def asked(controller, maxr2t=0):
        """A write on a queue of its own that has been asked for its data."""
        queue = controller.io_queue(1, maxr2t=maxr2t)
        write = queue.submit(Command(0x01, write=bytes(64 << 10), withhold=True),
                             namespace.fields(0, (64 << 10) // namespace.block), in_capsule=False)
        while not write.owed:
            queue.step()
        (ttag, (offset, length)), = write.owed.items()
        return queue.connection, write.cid, ttag, offset, length

    def data_of(connection, cid, ttag, offset, length, flags=LAST):
        fields = struct.pack("<HHII4x", cid, ttag, offset, length)
        return connection.pdu(H2C_DATA, flags, fields, bytes(length))

    wrong = {
        "another TTAG": (lambda c, i, t, o, n: data_of(c, i, t ^ 0x5555, o, n), (1,)),
        "another CCCID": (lambda c, i, t, o, n: data_of(c, i ^ 0x5555, t, o, n), (1,)),
        "another DATAO": (lambda c, i, t, o, n: data_of(c, i, t, o + 4096, 4096), (1, 4)),
        "beyond R2TL": (lambda c, i, t, o, n: data_of(c, i, t, o, n + 4096), (4, 5)),
        "LAST_PDU early": (lambda c, i, t, o, n: data_of(c, i, t, o, n - 4096), (1, 2, 4)),
    }
    for what, (make, reasons) in wrong.items():
        controller = Controller(place, nqn)
        controller.identify_controller(1)
        namespace = Namespace(controller, 1)
        connection, *asked_for = asked(controller)
        sent = make(connection, *asked_for)
        connection.send(sent)
        LEDGER.scenario = f"termination, {what}"
        kind, _, head, data = connection.receive()
        equal("the PDU that ends it", NAMES[kind], NAMES[C2H_TERM])
        check(le(head[8:10]) in reasons, f"FES is {le(head[8:10])}, none of {reasons}")
        check(sent.startswith(data), "C2HTermReq holds another header")
        connection.close()
        controller.admin.connection.close()
    # A host that gives up is not answered: the controller closes.
    connection = Connection(place)
    connection.send(header(H2C_TERM, 24, 32) + struct.pack("<HI10x", 1, 0) + bytes(8))
    check(connection.is_closed(), "something follows H2CTermReq")


def run(place, nqn, nsid, notice, dissected):
    def scenario(name, function, *arguments, **options):
        LEDGER.scenario = name
        began, violations = time.monotonic(), len(LEDGER.violations)
        if dissected:
            options.pop("hpda", None)
        if function is session:
            options["dissected"] = dissected
        try:
            function(*arguments, **options)
        except (Unusable, OSError) as error:
            LEDGER.violations.append(f"{LEDGER.scenario}: {error or type(error).__name__}")
        good = len(LEDGER.violations) == violations
        print(f"{name}: {'ok' if good else 'FAILED'} ({time.monotonic() - began:.1f} s)", flush=True)

    scenario("discovery", discovery, place, nqn)
    scenario("discovery with digests", discovery, place, nqn, hdgst=True, ddgst=True, hpda=31)
    scenario("plain", session, place, nqn, nsid, notice=notice, maxr2t=7)
    scenario("without flow control", session, place, nqn, nsid, flow_control=False, hpda=3)
    scenario("header digest", session, place, nqn, nsid, hdgst=True, rounds=5, hpda=31)
    scenario("data digest", session, place, nqn, nsid, ddgst=True, rounds=5, maxr2t=1)
    scenario("both digests", session, place, nqn, nsid, hdgst=True, ddgst=True, rounds=5, hpda=15,
             flow_control=False)
    scenario("empty host NQN", session, place, nqn, nsid, host_nqn="", rounds=5)
    scenario("refused connects", refused_connects, place, nqn)
    scenario("reset", reset, place, nqn)
    scenario("keep-alive", keep_alive, place, nqn)
    scenario("termination", termination, place, nqn)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("nqn")
    parser.add_argument("--nsid", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--notice", action="store_true")
    parser.add_argument("--dissected", action="store_true")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    place = (arguments.address, arguments.port)
    run(place, arguments.nqn, arguments.nsid, arguments.notice, arguments.dissected)

    return report()


def report():
    """Prints what was seen, and returns the exit code."""
    pdus = ", ".join(f"{count} {name}" for name, count in sorted(LEDGER.pdus.items()))
    moved = ", ".join(f"{count >> 10} KiB {way}" for way, count in sorted(LEDGER.bytes.items()))
    print(f"{LEDGER.commands} commands; received {pdus}; {moved}; {LEDGER.digests} digests; "
          f"up to {LEDGER.most_r2ts} R2Ts of a command outstanding; {LEDGER.checks} checks")
    for text, count in Counter(LEDGER.violations).items():
        print(f"violation: {text}" + (f" ({count} times)" if count > 1 else ""))
    print(f"{len(LEDGER.violations)} violations")
    return 1 if LEDGER.violations else 0


if __name__ == "__main__":
    sys.exit(main())
