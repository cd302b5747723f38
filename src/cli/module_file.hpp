#pragma once

#include "cli/driver_module.hpp"

#include <filesystem>
#include <string>

/// Loading a driver's module. It runs with all our rights, so it comes from one folder that is
/// fixed when the tool is built or installed, and nobody whom the tool does not trust anyway may
/// have written it or have put it there.
namespace rowlock::cli {

struct module_folder {
    std::filesystem::path path;  ///< absolute
    /// Members of the folders' groups may write there: in a build they could as well replace the
    /// tool.
    bool group_may_write = false;
};

/// That of this executable: src/cli/module_folder.cpp.in.
[[nodiscard]] module_folder folder_of_modules();

/// What dlopen() answers; never unloaded.
/// @param proc  where the kernel names our descriptors; tests have another
/// @throws failure `misconfigured`: the file is missing; it, or a folder on the way to it, belongs
/// to or may be written by another user; there is no /proc, by which alone the file that was looked
/// at is surely the one that is loaded
[[nodiscard]] void* load_module(const module_folder& from, const std::string& file,
                                const std::string& proc = "/proc");

/// The driver in a module that was loaded.
/// @throws failure `misconfigured` if it is of another version than the tool
[[nodiscard]] const driver_module& driver_in(void* loaded, const std::string& file);

}  // namespace rowlock::cli
