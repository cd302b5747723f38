#include <rowlock/ids.hpp>

#include <ostream>

namespace rowlock {

std::ostream& operator<<(std::ostream& out, session_id id) {
    return out << to_string(id);
}

std::ostream& operator<<(std::ostream& out, grant_id id) {
    return out << to_string(id);
}

std::ostream& operator<<(std::ostream& out, ticket_no number) {
    return out << to_string(number);
}

}  // namespace rowlock
