#pragma once

/// Everything but drivers.
#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>
#include <rowlock/error.hpp>
#include <rowlock/events.hpp>
#include <rowlock/fencing_token.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/mutex.hpp>
#include <rowlock/options.hpp>
#include <rowlock/reaper.hpp>
#include <rowlock/retry.hpp>
#include <rowlock/stats.hpp>
#include <rowlock/version.hpp>
