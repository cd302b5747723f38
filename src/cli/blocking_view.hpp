#pragma once

#include "upkeep/blocking_transactions.hpp"

#include <string>

namespace rowlock::cli {

/// A transaction that keeps rows locked, on one line and without how_to_end; to be escaped by its
/// user: "prepared transaction 'g' of app, for 3 min".
[[nodiscard]] std::string description_of(const detail::blocking_transaction& one);

}  // namespace rowlock::cli
