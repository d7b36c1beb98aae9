# Makes the image of the e2e specs' pods: agnhost, and the commands that specs run beside it.
#
# 1: the image's name; 2: the program; 3: the archive.
for program in dash nc.openbsd curl wget; do
    [ -x "$(command -v $program)" ] || {
        echo "the image of the specs' pods needs $program: apt-get install dash netcat-openbsd curl wget" >&2
        exit 1
    }
done
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$2" "$root/agnhost"
for applet in $(busybox --list); do ln -s busybox "$root/bin/$applet"; done
# Not busybox': its shell prefers its own nc, which lacks -v, and the wget of Debian's static one crashes.
rm "$root/bin/busybox" "$root/bin/sh" "$root/bin/nc" "$root/bin/wget"
cp "$(command -v busybox)" "$root/bin/busybox"
cp -L "$(command -v dash)" "$root/bin/sh"
cp -L "$(command -v nc.openbsd)" "$root/bin/nc"
cp -L "$(command -v curl)" "$(command -v wget)" "$root/bin"
# As the one of the published image does.
mkdir "$root/etc" && echo 'tries = 1' >"$root/etc/wgetrc"
for program in sh nc curl wget; do
    ldd "$root/bin/$program" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root${library%/*}"
        cp -L "$library" "$root$library"
    done
done
printf 'FROM scratch\nCOPY . /\nENV PATH=/bin:/\nENTRYPOINT ["/agnhost"]\nCMD ["pause"]\n' >"$3.Containerfile"
buildah bud --quiet --isolation chroot --file "$3.Containerfile" --tag "$1" "$root" >/dev/null
rm -f "$3.new"
buildah push --quiet "$1" "docker-archive:$3.new:$1" >/dev/null
mv "$3.new" "$3"
