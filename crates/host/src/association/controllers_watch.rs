//! Notice of the controllers of an association.

use crate::recovery::fences::ControllerName;

/// Told of the controllers of an association.
pub trait ControllersWatch: Send + Sync + std::fmt::Debug {
    /// These are all controllers that may carry out commands of the association from now on: the present
    /// one, and those of lost connections of which the end is not known. Called before anything is sent
    /// to the present one; must not block, nor use the association.
    fn note(&self, controllers: &[ControllerName]);
}
