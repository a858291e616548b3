#include "likeness.h"

namespace longshare {
namespace adapter {

std::string unlike(const std::vector<Layout>& layouts) {
  std::string differing;
  for (const Layout& layout : layouts) {
    if (layout.ours != layout.masters) {
      differing += "\n  " + layout.message + " has " + std::to_string(layout.ours) + " bytes in this module, " +
                   std::to_string(layout.masters) + " in the master";
    }
  }
  if (differing.empty()) {
    return differing;
  }
  return "Longshare's allocator module was built with the sources of another Mesos than this master:" + differing +
         "\nBuild it again, with -DMESOS_SOURCE naming the sources that this master was built from";
}

}  // namespace adapter
}  // namespace longshare
