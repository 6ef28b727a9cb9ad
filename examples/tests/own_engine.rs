//! The contracts of engines, tested on the engine of the example.
#![allow(dead_code, reason = "the example has a main function")]

#[path = "../own_engine.rs"]
mod example;
