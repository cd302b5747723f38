#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace rowlock {

/// @addtogroup leases
/// @{

/// A session: one life of a client in the database, which its leases and queue entries name. Random
/// and above 0; 0: none.
enum class session_id : std::int64_t {};

/// One grant of a name, or the queue entry that becomes it. A client chooses it before it asks, and
/// by it finds out what a lost reply said. Random and above 0; 0: none.
enum class grant_id : std::int64_t {};

/// The number of a queue entry: of one name the entry with the smallest is served next. 0: none.
enum class ticket_no : std::int64_t {};

/// The number in decimal digits.
[[nodiscard]] inline std::string to_string(session_id id) {
    return std::to_string(static_cast<std::int64_t>(id));
}
/// The number in decimal digits.
[[nodiscard]] inline std::string to_string(grant_id id) {
    return std::to_string(static_cast<std::int64_t>(id));
}
/// The number in decimal digits.
[[nodiscard]] inline std::string to_string(ticket_no number) {
    return std::to_string(static_cast<std::int64_t>(number));
}

/// They write to_string(): digits alone, whatever the stream's locale.
std::ostream& operator<<(std::ostream& out, session_id id);
/// Likewise.
std::ostream& operator<<(std::ostream& out, grant_id id);
/// Likewise.
std::ostream& operator<<(std::ostream& out, ticket_no number);

/// @}

}  // namespace rowlock
