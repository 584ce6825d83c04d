//! Tests of the reader on whole sections: from files of this machine, assembled, made by hand, and
//! damaged. They are one binary, to be linked once.
#![cfg(test)]

mod assembled;
mod build;
mod by_hand;
mod damaged;
mod files;
mod generated;
mod lookup;
mod orc;
mod report_2018;
mod sframe;
mod thumb;
mod written;
