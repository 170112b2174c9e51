//! Commands over extents that are sent as one command per extent, because the controller does not
//! support the original: after a reconnect it may take fewer extents, bytes or commands at a time,
//! or none.
//!
//! Each extent is then an ordinary request: locked, fenced, split, sent again and given up
//! separately. The command ends with its last extent, and each extent has its own result. Until
//! then the blocks of resent extents stay locked, because no newer write may be acknowledged before
//! the command.

use crate::command::BlockRequest;
use crate::command::exchange::{Exchange, Work};
use crate::command::extents::ExtentsRequest;
use crate::recovery::span::Span;
use base::mutation::{self, Mutation};
use base::units::Lba;
use block::BlockError;
use reactor::IoSlice;
use std::num::NonZeroU16;

/// A command whose extents are in flight.
#[derive(Debug)]
pub(crate) struct ApartCommand {
    pub(crate) request: Box<ExtentsRequest>,
    /// Number of extents that are not complete.
    left: usize,
    /// Locked blocks of the completed extents.
    pub(crate) locked: Vec<Span>,
}

/// The commands of a channel that are sent as one command per extent.
#[derive(Debug, Default)]
pub(crate) struct ApartCommands {
    /// Commands by number, from 1.
    commands: Vec<Option<ApartCommand>>,
    /// Number of extents that are not complete, minus one per command: the excess of exchanges over
    /// requests in flight.
    pub(crate) further: usize,
}

impl ApartCommands {
    /// Takes a command over extents, and makes an exchange of each extent.
    pub(crate) fn take(&mut self, exchange: Exchange) -> Vec<Exchange> {
        let Work::Extents(mut request) = exchange.work else {
            unreachable!("the caller looked");
        };
        let place = self.commands.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() - 1
        });
        let number = u16::try_from(place + 1).ok().and_then(NonZeroU16::new);
        let number = number.expect("fewer commands than a controller counts");
        let (nsid, namespace, lent) = (request.nsid, request.namespace, request.lent);
        let operation = request.command.operation;
        let most = if mutation::active(Mutation::ExtentsLeftOut) {
            1
        } else {
            request.command.extents.len()
        };
        let extents = request.command.extents.iter_mut().enumerate().take(most);
        let extents = extents.map(|(index, extent)| {
            let alone = BlockRequest {
                operation,
                nsid,
                namespace,
                lba: extent.lba,
                blocks: extent.blocks,
                blocks_done: 0,
                blocks_left: 0,
                private_data: false,
                extent_of: Some(number),
            };
            let (direction, data) = (exchange.direction, extent.data.take());
            Exchange {
                lent: lent >> index & 1 == 1,
                timeouts: exchange.timeouts,
                retries: exchange.retries,
                replayed: exchange.replayed,
                given_up: exchange.given_up,
                limit: exchange.limit,
                held: exchange.held,
                ..Exchange::new(exchange.tag, Work::Block(alone), direction, data)
            }
        });
        let extents: Vec<_> = extents.collect();
        let left = extents.len();
        self.further += left - 1;
        self.commands[place] = Some(ApartCommand {
            request,
            left,
            locked: Vec::new(),
        });
        extents
    }

    fn command(&mut self, number: NonZeroU16) -> &mut Option<ApartCommand> {
        &mut self.commands[usize::from(number.get()) - 1]
    }

    /// Keeps the blocks of a completed extent locked until its command ends. Returns false if it is
    /// the last extent.
    pub(crate) fn keep_locked(
        &mut self,
        number: NonZeroU16,
        blocks: impl Iterator<Item = Span>,
    ) -> bool {
        let command = self.command(number).as_mut();
        let command = command.filter(|command| command.left > 1);
        command.is_some_and(|command| {
            command.locked.extend(blocks);
            true
        })
    }

    /// Ends the extent at `lba` of a command. Returns the command if it was the last extent.
    pub(crate) fn end(
        &mut self,
        number: NonZeroU16,
        lba: Lba,
        result: Result<(), BlockError>,
        data: Option<IoSlice>,
    ) -> Option<ApartCommand> {
        let place = self.command(number);
        let command = place.as_mut().expect("it has an extent that is not over");
        let mut extents = command.request.command.extents.iter_mut();
        let extent = extents.find(|extent| extent.lba == lba);
        let extent = extent.expect("extents keep their places");
        (extent.result, extent.data) = (result, data);
        command.left -= 1;
        if command.left == 0 {
            return place.take();
        }
        self.further -= 1;
        None
    }
}
