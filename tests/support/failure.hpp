#pragma once

#include <rowlock/error.hpp>

#include <functional>

namespace support {

/// What kind of error `action` throws; errc{} if it throws none.
inline rowlock::errc kind_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const rowlock::error& failure) {
        return failure.kind();
    }
    return {};
}

}  // namespace support
