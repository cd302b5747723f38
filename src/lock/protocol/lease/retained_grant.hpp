#pragma once

#include <rowlock/ids.hpp>

#include <string>

namespace rowlock::protocol {

/// A grant that its client may keep without a thread that holds it.
struct retained_grant {
    std::string name;
    session_id session;
    rowlock::grant_id grant_id;
};

}  // namespace rowlock::protocol
