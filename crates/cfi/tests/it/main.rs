//! Tests of the reader on whole sections: of files of this machine, assembled, made by hand,
//! and damaged. One binary, so that they are linked once.
#![cfg(test)]

mod assembled;
mod build;
mod by_hand;
mod damaged;
mod files;
mod generated;
mod lookup;
mod report_2018;
mod sframe;
mod thumb;
mod written;
