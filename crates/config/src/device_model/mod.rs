//! The model of a device: what requests cost on it, and how late reads are at each load.
//! `[ReFlex §3.2.1]`
//!
//! What is this: the file that `switchyard calibrate` writes and a target reads, in TOML for
//! people. Prices are in thousandths of a token for each 4 KiB, one token being the price of a read
//! under a mixed load; a curve's points name the latency of reads at a rate of tokens. Must never:
//! lead to a model that was not in the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base::Nanos;
use qos::cost::{Price, Prices};
use qos::curve::{CurveError, Point};
use qos::{CostModel, Curve, Percentile, PricedOperation, TokenRate};

use crate::files::{folder_above, read_regular, read_regular_beneath};
use crate::limits::DEVICE_MODEL_BYTES_MAX;
use crate::{ConfigError, Format, FoundNode, FromNode, Problem, Spot, Table, parse_part};

#[cfg(test)]
mod tests;

/// The version of the file's form.
const VERSION: u32 = 1;

const REMEDY: &str = "name a file that `switchyard calibrate` wrote";

/// The model of a device: provenance, prices and latency curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    /// The origin of the numbers.
    pub provenance: Provenance,
    /// The price of each operation.
    pub prices: PriceList,
    /// Latency of 4 KiB reads at each rate.
    pub curve: Curve,
}

crate::decoded! {
    /// The origin of a model's numbers.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Provenance {
        /// The device, as the command line named it.
        pub device: String = required("say which device, like device = \"flash:A:1G\""),
        /// Time of the measurement: UTC, as of RFC 3339.
        pub measured_at: Option<String> = or(None),
        /// The version of the program that measured.
        pub switchyard: Option<String> = or(None),
        /// The kernel that it ran on.
        pub kernel: Option<String> = or(None),
        /// The command that measured it.
        pub command: Option<String> = or(None),
        /// The price of a write was measured; otherwise it was given.
        pub write_price_measured: bool = or(false),
        /// Spread of token rates at the same latency, over the loads that were measured: half of the
        /// range, in thousandths of the middle.
        pub spread_permille: Option<u32> = or(None),
        /// The part of the curve that was measured while the device served, if any.
        pub live: Option<Live> = or(None),
    }

    struct FilePrices {
        mixed: MixedPrices = required("write [prices.mixed]"),
        read_only: ReadOnlyPrices = required("write [prices.read_only]"),
    }

    struct ReadOnlyPrices {
        read_millitokens: u32 = required("write thousandths of a token, like read_millitokens = 500"),
    }
}

/// A measurement while the device served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The share of the rate that was spent on it, in hundredths.
    pub share_percent: u32,
    /// The lowest load of which the curve is new; below and above, it is as it was before.
    pub from: TokenRate,
    /// The highest.
    pub to: TokenRate,
}

/// Prices of a unit of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// A write's.
    pub write: Price,
    /// A read's while the load only reads; under a mixed load it is [`Price::READ`].
    pub read_only_read: Price,
    /// Under a mixed load, of operations that cost something else than [`Prices::new`] says.
    pub others: BTreeMap<PricedOperation, Price>,
}

impl PriceList {
    /// The two that calibration finds.
    #[must_use]
    pub const fn new(write: Price, read_only_read: Price) -> Self {
        Self {
            write,
            read_only_read,
            others: BTreeMap::new(),
        }
    }

    /// Returns the prices that the scheduler charges. While the load only reads, an operation that
    /// changes the device has its price under a mixed load.
    #[must_use]
    pub fn costs(&self) -> CostModel {
        let mut mixed = Prices::new(Price::READ, self.write);
        let mut read_only = Prices::new(self.read_only_read, self.write);
        for (&operation, &price) in &self.others {
            mixed = mixed.with(operation, price);
            if !operation.is_read() {
                read_only = read_only.with(operation, price);
            }
        }
        CostModel { mixed, read_only }
    }
}

impl DeviceModel {
    /// Reads and checks a model.
    ///
    /// # Errors
    /// Every problem found, with line and key; without a file's name.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse_part(text, Format::Toml, Draft::check)
    }

    /// Reads and checks the model in the file at `path`.
    ///
    /// # Errors
    /// Every problem found, with file, line and key; or why the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_beneath(path, None)
    }

    /// The same for a file below one of `folders`, where there are such.
    pub fn load_beneath(path: &Path, folders: Option<&[PathBuf]>) -> Result<Self, ConfigError> {
        let model = match read(path, folders) {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                let problem = Problem::of_file(error, REMEDY);
                Err(ConfigError::single(problem))
            }
        };
        model.map_err(|error| error.in_file(path))
    }

    /// The file's text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_toml(&mut text);
        text
    }

    fn write_toml(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "# What requests cost on a device, and how late its reads are at each load.\n\
             version = {VERSION}\n\n\
             [provenance]"
        )?;
        let Provenance {
            device,
            measured_at,
            switchyard,
            kernel,
            command,
            write_price_measured,
            spread_permille,
            live,
        } = &self.provenance;
        let known = [
            ("device", Some(device)),
            ("measured_at", measured_at.as_ref()),
            ("switchyard", switchyard.as_ref()),
            ("kernel", kernel.as_ref()),
            ("command", command.as_ref()),
        ];
        for (key, value) in known {
            if let Some(value) = value {
                writeln!(text, "{key} = {}", toml::Value::String(value.clone()))?;
            }
        }
        writeln!(text, "write_price_measured = {write_price_measured}")?;
        if let Some(spread) = spread_permille {
            writeln!(
                text,
                "# How far token rates at the same latency lie apart, over the loads that were measured.\n\
                 spread_permille = {spread}"
            )?;
        }
        write_live(live.as_ref(), text)?;
        writeln!(
            text,
            "\n# Thousandths of a token for each 4 KiB. A read under a mixed load is one token.\n\
             [prices.mixed]"
        )?;
        for operation in PricedOperation::ALL {
            if let Some(price) = self.mixed(operation) {
                writeln!(text, "{} = {}", price_key(operation), price.as_milli())?;
            }
        }
        writeln!(
            text,
            "\n# While nothing but reads is asked for.\n\
             [prices.read_only]\n\
             {} = {}\n\n\
             # The latency of 4 KiB reads at so many tokens a second.",
            price_key(PricedOperation::Read),
            self.prices.read_only_read.as_milli()
        )?;
        for Point { rate, latency } in self.curve.points() {
            writeln!(text, "[[curve]]\n{RATE_KEY} = {}", rate.0)?;
            for (key, latency) in LATENCY_KEYS.iter().zip(latency) {
                writeln!(text, "{key} = {}", latency.0)?;
            }
        }
        Ok(())
    }

    /// A price that the file names.
    fn mixed(&self, operation: PricedOperation) -> Option<Price> {
        match operation {
            PricedOperation::Read => Some(Price::READ),
            PricedOperation::Write => Some(self.prices.write),
            other => self.prices.others.get(&other).copied(),
        }
    }
}

/// Writes the part that was measured while the device served.
fn write_live(live: Option<&Live>, text: &mut String) -> std::fmt::Result {
    let Some(Live {
        share_percent,
        from,
        to,
    }) = live
    else {
        return Ok(());
    };
    writeln!(
        text,
        "# Between these rates the curve was measured while the device served; the rest, and the \
         prices,\n# are of the model before.\n\
         live = {{ share_percent = {share_percent}, from_tokens_per_second = {}, \
         to_tokens_per_second = {} }}",
        from.0, to.0
    )
}

/// The values of a file, before they are checked together.
#[derive(Debug)]
struct Draft {
    provenance: Provenance,
    mixed: BTreeMap<PricedOperation, u32>,
    read_only_read: u32,
    points: Vec<Point>,
}

impl Draft {
    /// The model, where all of it can be true; what cannot is reported.
    fn check(self, root: &Spot<'_>) -> Option<DeviceModel> {
        let prices = root.key("prices");
        let price = |list: &str, operation, milli| {
            let place = prices.key(list).key(price_key(operation));
            let price = Price::milli(milli);
            let price = price.map_err(|error| place.report(error.to_string(), REMEDY));
            let is_unit = list == "mixed" && operation == PricedOperation::Read;
            if is_unit && milli != Price::READ.as_milli() {
                place.report(
                    format!("is {milli}, but a read under a mixed load is one token by definition"),
                    "write 1000, and scale the other prices and the curve's rates",
                );
            }
            price.ok()
        };
        let mixed = self.mixed.iter().filter_map(|(&operation, &milli)| {
            let price = price("mixed", operation, milli)?;
            Some((operation, price))
        });
        let mut others: BTreeMap<_, _> = mixed.collect();
        others.remove(&PricedOperation::Read);
        let write = others.remove(&PricedOperation::Write);
        let read_only_read = price("read_only", PricedOperation::Read, self.read_only_read);
        let curve = Curve::new(self.points);
        let curve = curve.map_err(|error| report_curve(error, &root.key("curve")));
        Some(DeviceModel {
            provenance: self.provenance,
            prices: PriceList {
                write: write?,
                read_only_read: read_only_read?,
                others,
            },
            curve: curve.ok()?,
        })
    }
}

fn report_curve(error: CurveError, curve: &Spot<'_>) {
    let place = match error {
        CurveError::Points(_) => curve.clone(),
        CurveError::Order(at) | CurveError::Rate(at) => curve.index(at).key(RATE_KEY),
        CurveError::Latency(at) => curve.index(at),
    };
    place.report(error.to_string(), "measure it again, or put it right");
}

impl FromNode for Draft {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let version: Option<u32> = table.required("version", "name a file of this version: 1");
        if let Some(other) = version.filter(|&version| version != VERSION) {
            table.place("version").report(
                format!("is {other}, and this program reads {VERSION}"),
                "calibrate the device again with this program",
            );
        }
        let provenance = table.required("provenance", "say what was measured in [provenance]");
        let prices: Option<FilePrices> =
            table.required("prices", "write [prices.mixed] and [prices.read_only]");
        let points: Option<Vec<Point>> =
            table.required("curve", "write the points of the curve, each as [[curve]]");
        table.finish();
        let prices = prices?;
        version.filter(|&version| version == VERSION)?;
        Some(Self {
            provenance: provenance?,
            mixed: prices.mixed.0,
            read_only_read: prices.read_only.read_millitokens,
            points: points?,
        })
    }
}

impl FromNode for Live {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let share_percent = table.required("share_percent", "write the share that was spent");
        let from = table.required("from_tokens_per_second", "write the lowest rate measured");
        let to = table.required("to_tokens_per_second", "write the highest rate measured");
        table.finish();
        Some(Self {
            share_percent: share_percent?,
            from: TokenRate(from?),
            to: TokenRate(to?),
        })
    }
}

struct MixedPrices(BTreeMap<PricedOperation, u32>);

impl FromNode for MixedPrices {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let prices = PricedOperation::ALL.map(|operation| {
            let key = price_key(operation);
            let price = match operation {
                PricedOperation::Read => table.required(key, "write 1000: one token").map(Some),
                PricedOperation::Write => {
                    let hint = "write thousandths of a token, like write_millitokens = 10000";
                    table.required(key, hint).map(Some)
                }
                _ => table.or(key, None),
            };
            Some((operation, price?))
        });
        table.finish();
        let mut read = BTreeMap::new();
        for price in prices {
            if let (operation, Some(price)) = price? {
                read.insert(operation, price);
            }
        }
        Some(Self(read))
    }
}

const RATE_KEY: &str = "tokens_per_second";

/// The keys of a point's latencies, in the order of [`Percentile::ALL`].
const LATENCY_KEYS: [&str; Percentile::COUNT] = ["p50_ns", "p95_ns", "p99_ns", "p999_ns"];

impl FromNode for Point {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let rate = table.required(RATE_KEY, "write the rate that was measured");
        let latency = LATENCY_KEYS.map(|key| table.required(key, "write nanoseconds"));
        table.finish();
        let mut point = Self {
            rate: TokenRate(rate?),
            latency: [Nanos::ZERO; Percentile::COUNT],
        };
        for (at, latency) in point.latency.iter_mut().zip(latency) {
            *at = Nanos(latency?);
        }
        Some(point)
    }
}

const fn price_key(operation: PricedOperation) -> &'static str {
    match operation {
        PricedOperation::Read => "read_millitokens",
        PricedOperation::Write => "write_millitokens",
        PricedOperation::Flush => "flush_millitokens",
        PricedOperation::WriteZeroes => "write_zeroes_millitokens",
        PricedOperation::Deallocate => "deallocate_millitokens",
        PricedOperation::Compare => "compare_millitokens",
        PricedOperation::Verify => "verify_millitokens",
    }
}

fn read(path: &Path, folders: Option<&[PathBuf]>) -> Result<String, String> {
    let text = match folders {
        None => read_regular(path, DEVICE_MODEL_BYTES_MAX),
        Some(folders) => {
            let folder = folder_above(path, folders);
            read_regular_beneath(folder, path, DEVICE_MODEL_BYTES_MAX)
        }
    };
    text.map_err(|error| format!("cannot be read: {error}"))
}
