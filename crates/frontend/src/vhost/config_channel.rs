//! The channel that notifies the front end of a changed configuration.

use rustix::cmsg_space;
use rustix::fd::OwnedFd;
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::{BackendReq, FrontendReq};

/// Bytes of a message's header: request, flags and payload size, 32 bits each.
const HEADER_BYTES: usize = 12;

/// Flags of a message that requests no reply: the protocol version.
const FLAGS: u32 = 1;

/// Peeks at the front end's next message without consuming it. Returns the channel's descriptor if
/// the message sets it: the `vhost` crate does not expose it, and sends no message of this kind.
pub(super) fn announced(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut header = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut header)];
    let received = recvmsg(socket, &mut into, &mut control, flags)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let file = files.next();
    let code = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sets = received.bytes == HEADER_BYTES && code == u32::from(FrontendReq::SET_BACKEND_REQ_FD);
    Ok(file.filter(|_| sets))
}

/// Notifies the front end that the configuration has changed.
/// `[vhost-user, VHOST_USER_BACKEND_CONFIG_CHANGE_MSG]`
pub(super) fn changed(channel: &OwnedFd) -> io::Result<()> {
    let mut message = [0; HEADER_BYTES];
    message[..4].copy_from_slice(&u32::from(BackendReq::CONFIG_CHANGE_MSG).to_le_bytes());
    message[4..8].copy_from_slice(&FLAGS.to_le_bytes());
    // Never blocks: it fails if the front end does not read.
    send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}
