//! The list of all figures, and their names.

use super::{Figure, blk_switch, i10, reflex, thesis};

/// All figures in the papers' order; the simulated variant of each follows the measured one.
pub const FIGURES: &[Figure] = &[
    blk_switch::fig02::FIGURE,
    blk_switch::fig03::SIZE,
    blk_switch::fig03::SLICES,
    blk_switch::fig03::PACE,
    blk_switch::fig03::NICENESS,
    blk_switch::fig07::FIGURE,
    blk_switch::fig07::SIMULATED,
    blk_switch::fig08::FIGURE,
    blk_switch::fig09::SIMULATED,
    blk_switch::fig10::FIGURE,
    blk_switch::fig10::SIMULATED,
    blk_switch::fig11::SIMULATED,
    blk_switch::fig12::SIMULATED,
    blk_switch::fig13::FIGURE,
    blk_switch::fig15::FIGURE,
    i10::fig06::FIGURE,
    i10::fig07::READS,
    i10::fig07::WRITES,
    i10::fig08::FIGURE,
    i10::fig09::SIMULATED,
    i10::fig10::FIGURE,
    i10::fig11::FIGURE,
    reflex::fig01::SIMULATED,
    reflex::fig03::DEVICE_A,
    reflex::fig03::DEVICE_B,
    reflex::fig03::DEVICE_C,
    reflex::table2::FIGURE,
    reflex::fig05::FIRST,
    reflex::fig05::SECOND,
    reflex::fig06::simulated::THREADS_FIGURE,
    reflex::fig06::measured::TENANTS_FIGURE,
    reflex::fig06::simulated::TENANTS_FIGURE,
    reflex::fig06::measured::CONNECTIONS_FIGURE,
    reflex::fig06::simulated::CONNECTIONS_FIGURE,
    thesis::table6::FIGURE,
    thesis::table6::MEASURED_COSTS,
    thesis::table6::THESIS_COSTS,
    thesis::table7::MEASURED_COSTS,
    thesis::table7::THESIS_COSTS,
    thesis::iozone::BASELINE,
    thesis::iozone::BASELINE_SIMULATED,
    thesis::fig04::FIGURE,
    thesis::fig04::SIMULATED,
    thesis::iozone::SYNCHRONOUS,
    thesis::iozone::SYNCHRONOUS_SIMULATED,
    thesis::fig09::FIGURE,
    thesis::fig09::SIMULATED,
    thesis::iozone::ASYNCHRONOUS,
    thesis::iozone::ASYNCHRONOUS_SIMULATED,
    thesis::iozone::HYBRID,
    thesis::iozone::HYBRID_SIMULATED,
    thesis::iozone::READ_AHEAD,
    thesis::iozone::READ_AHEAD_SIMULATED,
    thesis::iozone::DOUBLE,
    thesis::iozone::DOUBLE_SIMULATED,
    thesis::iozone::EVERY_PATH,
    thesis::iozone::EVERY_PATH_SIMULATED,
    thesis::fig18::FIGURE,
    thesis::fig18::SIMULATED,
    thesis::fig21::COMMAND,
    thesis::fig21::COMMAND_SIMULATED,
    thesis::fig21::PAGE,
    thesis::fig21::PAGE_SIMULATED,
    thesis::fig22::FIGURE,
    thesis::fig22::DIRECT,
    thesis::fig22::CACHED,
    thesis::fig23::FIGURE,
    thesis::fig23::READS,
    thesis::fig23::WRITES,
];

/// Returns the figures that `name` selects: one, all parts of one, or "all"; empty if there is
/// none. A slash may also join paper and number.
#[must_use]
pub fn named(name: &str) -> Vec<&'static Figure> {
    let name = &name.replace('/', "-");
    let part_of = |figure: &Figure| {
        let part = figure.name.strip_prefix(name.as_str());
        part.is_some_and(|part| {
            part.is_empty() || part.len() == 1 && part.starts_with(|c: char| c.is_ascii_lowercase())
        })
    };
    FIGURES
        .iter()
        .filter(|figure| name == "all" || part_of(figure))
        .collect()
}

/// Returns the current name of a renamed figure: simulated figures of ReFlex had no `sim-`, and
/// measured ones ended in `-machine`.
#[must_use]
pub fn renamed(name: &str) -> Option<String> {
    let name = name.replace('/', "-");
    let now = match name.strip_suffix("-machine") {
        Some(measured) => measured.to_owned(),
        None => format!("sim-{name}"),
    };
    (named(&name).is_empty() && !named(&now).is_empty()).then_some(now)
}
