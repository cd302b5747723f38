#pragma once

#include "base/identity.hpp"
#include "base/utf8.hpp"
#include "lock/protocol/lease/lease_protocol.hpp"
#include "lock/session/client_context.hpp"
#include <rowlock/options.hpp>

#include <unistd.h>

#include <string>

namespace rowlock::detail {

/// The terms of a request, with the name under which this client asks.
struct request_terms {
    std::chrono::microseconds within{0};
    std::string asked_by{}, reason{};

    [[nodiscard]] protocol::release_terms view() const {
        return {.within = within, .asked_by = asked_by, .reason = reason};
    }
};

/// So much of a reason fits into its column.
inline constexpr std::size_t most_reason = 1'000;

/// This client, for people.
inline std::string name_of(const client_context& context) {
    return context.options.program + ", pid " + std::to_string(::getpid()) + " on " +
           base::host_name();
}

/// A request without a time has an empty `asked_by`, which is what the protocol knows it by: its
/// reason then says who asks as well, for the history and whoever looks at the row.
inline request_terms terms_of(const client_context& context, const request_options& options) {
    if (options.within > std::chrono::milliseconds{0}) {
        return {.within = options.within, .asked_by = name_of(context), .reason = options.reason};
    }
    std::string text = name_of(context);
    if (!options.reason.empty()) text += ": " + options.reason;
    return {.reason = utf8::up_to(text, most_reason)};
}

}  // namespace rowlock::detail
