#pragma once

#include "random.hpp"

#include <string>
#include <vector>

namespace rowlock::sim {

/// What a descriptor stands for that an alarm polls: its own wake-ups, a mailbox, the changes of a
/// database. Descriptors are never used again within a simulation, and closing one does nothing.
struct pollable {
    bool readable = false;
    int owner = -1;                           ///< a mailbox: the id of its node
    i64 mailbox = 0;                          ///< and its number
    std::vector<std::string> datagrams = {};  ///< and its contents
};

/// Returns a descriptor that no real file has.
[[nodiscard]] int new_pollable();
/// Null for a descriptor of something else.
[[nodiscard]] pollable* find_pollable(int descriptor);
/// Before each simulation.
void forget_pollables();

}  // namespace rowlock::sim
