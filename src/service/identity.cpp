#include "service/identity.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <random>

namespace rowlock::service {

std::int64_t random_id(int bits) {
    std::uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn)) {
        drawn = std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
    }
    return static_cast<std::int64_t>(drawn >> (64 - bits)) + 1;
}

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? std::string{name} : std::string{"unknown"};
}

}  // namespace rowlock::service
