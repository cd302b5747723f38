#include <rowlock/events.hpp>

#include <ostream>

namespace rowlock {

std::string_view to_string(loss_reason why) noexcept {
    switch (why) {
        case loss_reason::none:
            return "none";
        case loss_reason::trust_window_passed:
            return "trust window passed";
        case loss_reason::session_ended:
            return "session ended";
        case loss_reason::forced_release:
            return "forced release";
        case loss_reason::deadline_passed:
            return "deadline passed";
        case loss_reason::client_closed:
            return "client closed";
        case loss_reason::server_changed:
            return "server changed";
        case loss_reason::release_requested:
            return "release requested";
        case loss_reason::connection_lost:
            return "connection lost";
    }
    return "unknown";
}

std::ostream& operator<<(std::ostream& out, loss_reason why) {
    return out << to_string(why);
}

std::string_view to_string(event_kind kind) noexcept {
    switch (kind) {
        case event_kind::session_opened:
            return "session opened";
        case event_kind::session_ended:
            return "session ended";
        case event_kind::waiting:
            return "waiting";
        case event_kind::release_requested:
            return "release requested";
        case event_kind::queue_entry_lost:
            return "queue entry lost";
        case event_kind::lease_acquired:
            return "lease acquired";
        case event_kind::lease_released:
            return "lease released";
        case event_kind::lease_lost:
            return "lease lost";
        case event_kind::heartbeat_late:
            return "heartbeat late";
        case event_kind::heartbeat_failed:
            return "heartbeat failed";
        case event_kind::ttl_short:
            return "ttl too short";
        case event_kind::reconnected:
            return "reconnected";
        case event_kind::outcome_unknown:
            return "outcome unknown";
        case event_kind::resolved:
            return "resolved";
        case event_kind::unlock_failed:
            return "unlock failed";
        case event_kind::reaped:
            return "reaped";
        case event_kind::advisory_locked:
            return "advisory lock taken";
        case event_kind::advisory_unlocked:
            return "advisory lock given back";
        case event_kind::advisory_lost:
            return "advisory lock lost";
        case event_kind::events_dropped:
            return "events dropped";
    }
    return "unknown";
}

std::ostream& operator<<(std::ostream& out, event_kind kind) {
    return out << to_string(kind);
}

}  // namespace rowlock
