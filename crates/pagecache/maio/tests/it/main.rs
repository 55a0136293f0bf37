//! The integration tests of the template-following policy: one binary, as each binary links the library again. They call
//! the policy as the runtime does, with sparse files and simulated readers, and need no privileges.

mod damaged_templates;
mod properties;
mod registration;
mod simulated_loads;
mod simulation;
