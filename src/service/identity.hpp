#pragma once

#include <cstdint>
#include <string>

namespace rowlock::service {

/// Above 0, so many random bits from the kernel: two processes never share a sequence, also after
/// fork().
[[nodiscard]] std::int64_t random_id(int bits = 62);

/// For people; "unknown" if the system does not tell.
[[nodiscard]] std::string host_name();

}  // namespace rowlock::service
