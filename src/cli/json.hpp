#pragma once

#include "cli/text.hpp"
#include <rowlock/client.hpp>
#include <rowlock/ids.hpp>
#include <rowlock/sql/connection.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace rowlock::cli {

/// Keys stay in the order they were written.
using json = nlohmann::ordered_json;

/// A 64-bit id or token: readers such as jq keep numbers as doubles and would change the last
/// digits.
inline std::string as_text(std::int64_t number) {
    return std::to_string(number);
}
template <sql::typed_integer Id>
std::string as_text(Id id) {
    return to_string(id);
}

inline json holder_to_json(const holder_info& holder) {
    json object{{"host", holder.host},
                {"pid", holder.pid},
                {"program", holder.program},
                {"owner", holder.owner},
                {"note", holder.note},
                {"thread", holder.thread},
                {"session", as_text(holder.session)},
                {"grant_id", as_text(holder.grant_id)},
                {"held_for_ms", holder.held_for.count()},
                {"remaining_ms", holder.remaining.count()}};
    if (holder.asked) {
        object["asked_by"] = holder.asked->asked_by;
        object["reason"] = holder.asked->reason;
    }
    return object;
}

/// ASCII alone, so that no name can steer a terminal; invalid UTF-8 becomes U+FFFD.
inline void print_json(const json& value) {
    print(value.dump(2, ' ', true, json::error_handler_t::replace) + "\n");
}

/// The same on one line.
inline std::string json_line(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace rowlock::cli
