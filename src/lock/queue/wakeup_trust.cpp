#include "lock/queue/wakeup_trust.hpp"

#include "base/ablation.hpp"

#include <algorithm>

namespace rowlock::detail {

void wakeup_trust::woken(std::string_view name, way how, std::chrono::nanoseconds waited) {
    const std::lock_guard lock{mutex_};
    if (name != name_) {
        name_ = name;
        in_a_row_ = 0;
    }
    latest_ = how;
    waited_ = waited;
    ++in_a_row_;
    if (needed_ > 1 && in_a_row_ >= forgiven_after * needed_) {
        needed_ /= 2;
        in_a_row_ = needed_;
    }
}

void wakeup_trust::missed() noexcept {
    const std::lock_guard lock{mutex_};
    latest_ = way::poll;
    in_a_row_ = 0;
    needed_ = std::min(2 * needed_, most_needed);
}

void wakeup_trust::start_anew() noexcept {
    const std::lock_guard lock{mutex_};
    latest_ = way::poll;
    in_a_row_ = 0;
}

wakeup_trust::way wakeup_trust::latest() const noexcept {
    const std::lock_guard lock{mutex_};
    return latest_;
}

std::optional<std::chrono::nanoseconds> wakeup_trust::expects(
    std::string_view name) const noexcept {
    if (!base::uses(base::fast_path::late_poll)) return std::nullopt;
    const std::lock_guard lock{mutex_};
    if (in_a_row_ < needed_ || name != name_) return std::nullopt;
    return waited_;
}

}  // namespace rowlock::detail
