#pragma once

#include "cli/text.hpp"

#include <nlohmann/json.hpp>

namespace rowlock::cli {

/// Keys stay in the order they were written.
using json = nlohmann::ordered_json;

/// ASCII alone, so that nothing in a name can steer a terminal; bytes that are no UTF-8 become
/// U+FFFD.
inline void print_json(const json& value) {
    print(value.dump(2, ' ', true, json::error_handler_t::replace) + "\n");
}

}  // namespace rowlock::cli
