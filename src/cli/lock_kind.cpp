#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"

#include <fmt/format.h>

namespace rowlock::cli {

void validate(const lock_kind_options& kind) {
    const int kinds = int{kind.shared} + int{kind.exclusive} + int{kind.limit.has_value()};
    if (kinds > 1) throw failure{usage, "--shared, --exclusive and --limit exclude each other"};
    if (kind.weight && !kind.limit) throw failure{usage, "--weight needs --limit"};
    constexpr auto most = protocol::largest_capacity;
    for (const auto& number : {kind.limit, kind.weight}) {
        if (number && (*number < 1 || *number > most)) {
            throw failure{usage, fmt::format("--limit and --weight are from 1 to {}", most)};
        }
    }
    if (kind.weight && *kind.weight > *kind.limit) {
        throw failure{usage, "--weight is more than --limit: it could never be granted"};
    }
}

failure of_another_kind(const std::string& name) {
    return {usage,
            fmt::format("{} is the name of a semaphore: use --limit, or another name", name)};
}

void require_capacity(const std::string& name, std::int64_t stored, std::int64_t named) {
    if (stored == named) return;
    throw failure{usage,
                  fmt::format("{0} allows {1}, and this command says --limit {2}: give all its "
                              "commands --limit {1}, or change it for all by `rowlock "
                              "semaphore set {0} {2}`",
                              name, stored, named)};
}

}  // namespace rowlock::cli
