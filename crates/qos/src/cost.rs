//! The cost of a request. `[ReFlex §3.2.1]`
//!
//! cost = ⌈size / 4 KiB⌉ × C(operation, read share). Every command has a price, including those
//! without data. C differs between a mixed load and a read-only load, as in the paper;
//! [`share`](crate::share) determines which of them applies. A [`CostModel`] comes from
//! calibration; the scheduler multiplies. Invariant: no request costs zero.

use crate::limits::{DEALLOCATE_UNITS, PRICE_MILLI_MAX, UNIT_BYTES, UNITS_MAX};
use crate::tokens::Tokens;

/// The operation of a request for the purpose of its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PricedOperation {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Empties the write cache.
    Flush,
    /// Makes a range read as zeroes (Write Zeroes).
    WriteZeroes,
    /// Deallocates a range (Dataset Management).
    Deallocate,
    /// Reads and compares with data.
    Compare,
    /// Reads without returning data.
    Verify,
}

impl PricedOperation {
    /// All operations.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::Compare,
        Self::Verify,
    ];
    /// Number of operations.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns true if the device only reads.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Compare | Self::Verify)
    }
}

/// Returns the units of a request of `bytes` bytes: 1 to [`UNITS_MAX`].
#[inline]
#[must_use]
pub fn units(bytes: u64) -> u32 {
    let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(UNITS_MAX);
    units.clamp(1, UNITS_MAX)
}

/// The price of a unit in thousandths of a token: 1 to [`PRICE_MILLI_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(u32);

impl Price {
    /// The price of a 4 KiB read under a mixed load: one token, by definition.
    pub const READ: Self = Self(1000);

    /// A price of `milli` thousandths of a token.
    ///
    /// # Errors
    /// If it is zero, or above the limit.
    pub const fn milli(milli: u32) -> Result<Self, PriceError> {
        if milli == 0 || milli > PRICE_MILLI_MAX {
            return Err(PriceError { milli });
        }
        Ok(Self(milli))
    }

    /// Returns the price in thousandths of a token.
    #[must_use]
    pub const fn as_milli(self) -> u32 {
        self.0
    }
}

/// An invalid price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cost of {milli} thousandths of a token is out of range; use 1 to {PRICE_MILLI_MAX}")]
pub struct PriceError {
    milli: u32,
}

/// The kind of load on a device, which determines its prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceLoad {
    /// Any mix.
    #[default]
    Mixed,
    /// Only reads, for some time.
    ReadOnly,
}

/// The prices under one kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Price of each unit.
    pub(crate) unit: [Price; PricedOperation::COUNT],
    /// Minimum price of a request.
    pub(crate) least: [Price; PricedOperation::COUNT],
}

impl Prices {
    /// One price for reads (Read, Compare, Verify), another for operations that change the device;
    /// Deallocate costs one written unit per [`DEALLOCATE_UNITS`], and at least one.
    #[must_use]
    pub fn new(read: Price, write: Price) -> Self {
        let least =
            PricedOperation::ALL.map(|operation| if operation.is_read() { read } else { write });
        let mut unit = least;
        unit[PricedOperation::Deallocate as usize] = Price((write.0 / DEALLOCATE_UNITS).max(1));
        Self { unit, least }
    }

    /// Sets the price of one operation: per unit, and the minimum.
    #[must_use]
    pub fn with(mut self, operation: PricedOperation, price: Price) -> Self {
        self.unit[operation as usize] = price;
        self.least[operation as usize] = price;
        self
    }

    /// Returns the cost of a request of `units` units: at least the operation's minimum price, so
    /// never zero.
    #[inline]
    #[must_use]
    pub fn cost(&self, operation: PricedOperation, units: u32) -> Tokens {
        let at = operation as usize;
        let milli = i64::from(units.min(UNITS_MAX)) * i64::from(self.unit[at].0);
        Tokens::milli(milli.max(i64::from(self.least[at].0)))
    }
}

/// The cost of requests on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Prices under a mixed load.
    pub mixed: Prices,
    /// Prices while the load is read-only. Any other operation ends that state, and is priced as
    /// mixed.
    pub read_only: Prices,
}

impl CostModel {
    /// A model of three weights: of a written unit, and of a read unit under a read-only load; a
    /// read unit under a mixed load costs one token.
    #[must_use]
    pub fn new(write: Price, read_only_read: Price) -> Self {
        Self {
            mixed: Prices::new(Price::READ, write),
            read_only: Prices::new(read_only_read, write),
        }
    }

    /// Returns the prices under a kind of load.
    #[must_use]
    pub const fn prices(&self, load: DeviceLoad) -> &Prices {
        match load {
            DeviceLoad::Mixed => &self.mixed,
            DeviceLoad::ReadOnly => &self.read_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device_a() -> CostModel {
        CostModel::new(Price::milli(10_000).unwrap(), Price::milli(500).unwrap())
    }

    /// The paper's device A: a write costs ten reads, a read under a read-only load one half.
    #[test]
    fn prices_are_the_papers() {
        let model = device_a();
        let cost = |load, operation, bytes| model.prices(load).cost(operation, units(bytes));
        assert_eq!(
            cost(DeviceLoad::Mixed, PricedOperation::Read, 4096),
            Tokens::whole(1)
        );
        assert_eq!(
            cost(DeviceLoad::Mixed, PricedOperation::Read, 1024),
            Tokens::whole(1)
        );
        assert_eq!(
            cost(DeviceLoad::Mixed, PricedOperation::Read, 32 << 10),
            Tokens::whole(8)
        );
        assert_eq!(
            cost(DeviceLoad::Mixed, PricedOperation::Read, 4097),
            Tokens::whole(2)
        );
        assert_eq!(
            cost(DeviceLoad::Mixed, PricedOperation::Write, 4096),
            Tokens::whole(10)
        );
        assert_eq!(
            cost(DeviceLoad::ReadOnly, PricedOperation::Read, 4096),
            Tokens::milli(500)
        );
        assert_eq!(
            cost(DeviceLoad::ReadOnly, PricedOperation::Write, 4096),
            Tokens::whole(10)
        );
    }

    /// If only reads and writes counted, deallocations, write zeroes and compares would bypass the
    /// limits.
    #[test]
    fn no_command_escapes() {
        let model = device_a();
        for load in [DeviceLoad::Mixed, DeviceLoad::ReadOnly] {
            let prices = model.prices(load);
            let read = prices.cost(PricedOperation::Read, 1);
            for operation in PricedOperation::ALL {
                for bytes in [0, 1, 4096, 1 << 20, 1 << 40, u64::MAX] {
                    let cost = prices.cost(operation, units(bytes));
                    assert!(cost >= read, "{operation:?} of {bytes} bytes costs {cost}");
                }
                let small = prices.cost(operation, units(4096));
                let large = prices.cost(operation, units(1 << 30));
                assert!(large > small, "{operation:?} costs the same at any size");
            }
        }
        let mixed = model.mixed;
        assert_eq!(
            mixed.cost(PricedOperation::WriteZeroes, 256),
            Tokens::whole(2_560)
        );
        assert_eq!(
            mixed.cost(PricedOperation::Compare, 256),
            Tokens::whole(256)
        );
        assert_eq!(
            mixed.cost(PricedOperation::Flush, units(0)),
            Tokens::whole(10)
        );
    }

    #[test]
    fn units_round_up_and_end_somewhere() {
        assert_eq!(units(0), 1);
        assert_eq!(units(4096), 1);
        assert_eq!(units(4097), 2);
        assert_eq!(units(u64::MAX), UNITS_MAX);
        Price::milli(0).unwrap_err();
        Price::milli(PRICE_MILLI_MAX + 1).unwrap_err();
        let dear = Prices::new(Price(PRICE_MILLI_MAX), Price(PRICE_MILLI_MAX));
        let most = dear.cost(PricedOperation::Write, u32::MAX);
        assert_eq!(most, Tokens::whole(i64::from(UNITS_MAX) * 1000));
    }
}
