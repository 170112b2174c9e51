# DH-HMAC-CHAP of the kernel's initiator, with the secrets of /keys: in one direction and in both, and
# without the right secrets. The target requires it.

host=$(cat /keys/host)
controller=$(cat /keys/controller)
wrong=$(cat /keys/wrong)

step connect-one connects --dhchap-secret "$host"
step use-one use
step disconnect-one disconnect
step connect-both connects --dhchap-secret "$host" --dhchap-ctrl-secret "$controller"
step use-both use
step disconnect-both disconnect
step wrong-host refused --dhchap-secret "$wrong"
step wrong-controller refused --dhchap-secret "$host" --dhchap-ctrl-secret "$wrong"
step no-secret refused
