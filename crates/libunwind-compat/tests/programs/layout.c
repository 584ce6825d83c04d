/* The types and constants of <libunwind.h> that crates/libunwind-compat/src/abi.rs has. */
#include <libunwind.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(name, type) printf("sizeof " name " %zu\n", sizeof(type))
#define OFFSET(name, type, member) printf("offsetof " name " %zu\n", offsetof(type, member))
#define VALUE(name, value) printf("value " name " %d\n", (int)(value))

int main(void) {
    SIZE("OpaqueCursor", unw_cursor_t);
    SIZE("FloatRegister", unw_fpreg_t);
    SIZE("ProcInfo", unw_proc_info_t);
    OFFSET("ProcInfo.start_ip", unw_proc_info_t, start_ip);
    OFFSET("ProcInfo.end_ip", unw_proc_info_t, end_ip);
    OFFSET("ProcInfo.lsda", unw_proc_info_t, lsda);
    OFFSET("ProcInfo.handler", unw_proc_info_t, handler);
    OFFSET("ProcInfo.gp", unw_proc_info_t, gp);
    OFFSET("ProcInfo.flags", unw_proc_info_t, flags);
    OFFSET("ProcInfo.format", unw_proc_info_t, format);
    OFFSET("ProcInfo.unwind_info_size", unw_proc_info_t, unwind_info_size);
    OFFSET("ProcInfo.unwind_info", unw_proc_info_t, unwind_info);
    OFFSET("ProcInfo.extra", unw_proc_info_t, extra);
    SIZE("DynInfo", unw_dyn_info_t);
    OFFSET("DynInfo.next", unw_dyn_info_t, next);
    OFFSET("DynInfo.prev", unw_dyn_info_t, prev);
    OFFSET("DynInfo.start_ip", unw_dyn_info_t, start_ip);
    OFFSET("DynInfo.end_ip", unw_dyn_info_t, end_ip);
    OFFSET("DynInfo.gp", unw_dyn_info_t, gp);
    OFFSET("DynInfo.format", unw_dyn_info_t, format);
    OFFSET("DynInfo.load_offset", unw_dyn_info_t, load_offset);
    OFFSET("DynInfo.table", unw_dyn_info_t, u.rti);
    SIZE("RemoteTable", unw_dyn_remote_table_info_t);
    OFFSET("RemoteTable.name_ptr", unw_dyn_remote_table_info_t, name_ptr);
    OFFSET("RemoteTable.segbase", unw_dyn_remote_table_info_t, segbase);
    OFFSET("RemoteTable.table_len", unw_dyn_remote_table_info_t, table_len);
    OFFSET("RemoteTable.table_data", unw_dyn_remote_table_info_t, table_data);
    SIZE("SaveLocation", unw_save_loc_t);
    OFFSET("SaveLocation.kind", unw_save_loc_t, type);
    OFFSET("SaveLocation.value", unw_save_loc_t, u.addr);
    OFFSET("SaveLocation.value", unw_save_loc_t, u.regnum);
    OFFSET("SaveLocation.extra", unw_save_loc_t, extra);
#if UNW_VERSION < UNW_VERSION_CODE(1, 8)
    SIZE("AccessorsIn1_6", unw_accessors_t);
#else
    SIZE("Accessors", unw_accessors_t);
    OFFSET("Accessors.get_elf_filename", unw_accessors_t, get_elf_filename);
    OFFSET("Accessors.get_proc_ip_range", unw_accessors_t, get_proc_ip_range);
    OFFSET("Accessors.ptrauth_insn_mask", unw_accessors_t, ptrauth_insn_mask);
#endif
    OFFSET("Accessors.find_proc_info", unw_accessors_t, find_proc_info);
    OFFSET("Accessors.put_unwind_info", unw_accessors_t, put_unwind_info);
    OFFSET("Accessors.get_dyn_info_list_addr", unw_accessors_t, get_dyn_info_list_addr);
    OFFSET("Accessors.access_mem", unw_accessors_t, access_mem);
    OFFSET("Accessors.access_reg", unw_accessors_t, access_reg);
    OFFSET("Accessors.access_fpreg", unw_accessors_t, access_fpreg);
    OFFSET("Accessors.resume", unw_accessors_t, resume);
    OFFSET("Accessors.get_proc_name", unw_accessors_t, get_proc_name);
    VALUE("RIP", UNW_X86_64_RIP);
    VALUE("RIP", UNW_REG_IP);
    VALUE("RIP", UNW_REG_LAST);
    VALUE("RSP", UNW_X86_64_RSP);
    VALUE("RSP", UNW_REG_SP);
    VALUE("RBP", UNW_X86_64_RBP);
    VALUE("RAX", UNW_X86_64_RAX);
    VALUE("RAX", UNW_REG_EH);
    VALUE("RDX", UNW_X86_64_RDX);
    VALUE("CFA", UNW_X86_64_CFA);
    VALUE("UNSPECIFIED", -UNW_EUNSPEC);
    VALUE("NO_MEMORY", -UNW_ENOMEM);
    VALUE("BAD_REGISTER", -UNW_EBADREG);
    VALUE("READ_ONLY_REGISTER", -UNW_EREADONLYREG);
    VALUE("STOP", -UNW_ESTOPUNWIND);
    VALUE("INVALID_IP", -UNW_EINVALIDIP);
    VALUE("BAD_FRAME", -UNW_EBADFRAME);
    VALUE("INVALID", -UNW_EINVAL);
    VALUE("BAD_VERSION", -UNW_EBADVERSION);
    VALUE("NO_INFO", -UNW_ENOINFO);
    VALUE("CACHE_NONE", UNW_CACHE_NONE);
    VALUE("CACHE_GLOBAL", UNW_CACHE_GLOBAL);
    VALUE("CACHE_PER_THREAD", UNW_CACHE_PER_THREAD);
    VALUE("FORMAT_DYNAMIC", UNW_INFO_FORMAT_DYNAMIC);
    VALUE("FORMAT_TABLE", UNW_INFO_FORMAT_TABLE);
    VALUE("FLAG_DEBUG_FRAME", UNW_PI_FLAG_DEBUG_FRAME);
    VALUE("FORMAT_REMOTE_TABLE", UNW_INFO_FORMAT_REMOTE_TABLE);
    VALUE("FORMAT_IP_OFFSET", UNW_INFO_FORMAT_IP_OFFSET);
    VALUE("SAVED_NONE", UNW_SLT_NONE);
    VALUE("SAVED_MEMORY", UNW_SLT_MEMORY);
    VALUE("SAVED_REGISTER", UNW_SLT_REG);
    return 0;
}
