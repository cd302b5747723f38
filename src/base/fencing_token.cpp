#include <rowlock/fencing_token.hpp>

#include <ostream>

namespace rowlock {

std::ostream& operator<<(std::ostream& out, fencing_token token) {
    return out << to_string(token);
}

}  // namespace rowlock
