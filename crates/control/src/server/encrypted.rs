//! A connection with TLS: its handshake is a part of the first reading or writing, so that a slow one
//! holds up no other.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// A connection with TLS.
pub(super) struct Encrypted {
    state: State,
    /// Hears of a handshake that failed.
    failed: Box<dyn Fn(&io::Error) + Send>,
}

enum State {
    Handshake(Accept<TcpStream>),
    Open(TlsStream<TcpStream>),
    Failed,
}

impl Encrypted {
    pub(super) fn new(
        stream: TcpStream,
        tls: Arc<ServerConfig>,
        failed: impl Fn(&io::Error) + Send + 'static,
    ) -> Self {
        Self {
            state: State::Handshake(TlsAcceptor::from(tls).accept(stream)),
            failed: Box::new(failed),
        }
    }

    /// Waits for the end of the handshake.
    fn poll_open(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Pin<&mut TlsStream<TcpStream>>>> {
        if let State::Handshake(handshake) = &mut self.state {
            self.state = match ready!(Pin::new(handshake).poll(context)) {
                Ok(stream) => State::Open(stream),
                Err(error) => {
                    (self.failed)(&error);
                    State::Failed
                }
            };
        }
        Poll::Ready(match &mut self.state {
            State::Open(stream) => Ok(Pin::new(stream)),
            _ => Err(io::ErrorKind::ConnectionAborted.into()),
        })
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(context))?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written.
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_shutdown(context),
            _ => Poll::Ready(Ok(())),
        }
    }
}
