--  Exceptions of Ada: handlers on the way that raise again, and one of a signal.
with Ada.Text_IO; use Ada.Text_IO;
with Ada.Exceptions; use Ada.Exceptions;

procedure Deep is
   Too_Deep : exception;
   type Link is access Integer;
   Nothing : Link;
   pragma Volatile (Nothing);
   Passed : Natural := 0;

   function Descend (Depth : Natural) return Integer is
   begin
      if Depth = 0 then
         raise Too_Deep with "deep";
      end if;
      return Descend (Depth - 1) + 1;
   exception
      when Constraint_Error =>
         return 0;
      when others =>
         Passed := Passed + 1;
         raise;
   end Descend;

   function Value return Integer is
      pragma Suppress (Access_Check);
   begin
      return Nothing.all;
   end Value;
begin
   for Round in 1 .. 3 loop
      begin
         Put_Line (Integer'Image (Descend (10)));
      exception
         when E : Too_Deep =>
            Put_Line (Exception_Message (E) & Natural'Image (Passed));
      end;
      begin
         Put_Line (Integer'Image (Value));
      exception
         when Constraint_Error | Storage_Error =>
            Put_Line ("signal");
      end;
   end loop;
end Deep;
